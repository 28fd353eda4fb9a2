; The thread pool of the runner.
;
; The caller of a run takes one of 64 slots, writes its run into it and, for each parallel wave, sets
; the slot's bit in @open. Workers that see the bit count themselves into the slot, look whether the
; bit is still set, and claim work items until there are none. The caller claims work items too, then clears
; the bit and waits until the count is 0: from then on no worker touches the run. Workers that come
; late find no bit, or no work items.
;
; A worker that finds nothing spins for a while, then sleeps on a condition variable of its own.
; @sleepers is looked at whenever work is published. Both sides write first and read the other's
; flag afterwards, all sequentially consistent, so that no wake-up is lost.

%Slot = type [16 x i64]    ; 0 workers inside  8 run  9 most workers  10 first worker  11 all workers
%Worker = type [32 x i64]  ; 0 asleep  8 mutex  16 condition  24 thread  25 kept off
@open = internal global i64 0, align 128
@free = internal global i64 -1, align 128
@sleepers = internal global i64 0, align 128
@created = internal global i64 0, align 128
@refused = internal global i64 0, align 8
@making = internal global i64 0, align 8
@slots = internal global [64 x %Slot] zeroinitializer, align 128
@workers = internal global [${max_workers} x %Worker] zeroinitializer, align 128
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_detach(ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @sigfillset(ptr)
declare i32 @pthread_mutex_init(ptr, ptr)
declare i32 @pthread_mutex_lock(ptr)
declare i32 @pthread_mutex_unlock(ptr)
declare i32 @pthread_cond_init(ptr, ptr)
declare i32 @pthread_cond_wait(ptr, ptr)
declare i32 @pthread_cond_signal(ptr)
declare i32 @sched_yield()
declare i64 @llvm.cttz.i64(i64, i1)
declare i64 @llvm.fshr.i64(i64, i64, i64)
declare i64 @llvm.umin.i64(i64, i64)
declare void @llvm.x86.sse2.pause()
declare void @llvm.aarch64.isb(i32)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define internal void @pause() alwaysinline {
  ${pause}
  ret void
}

define internal void @reset() {
  store i64 0, ptr @open
  store i64 -1, ptr @free
  store i64 0, ptr @sleepers
  store i64 0, ptr @created
  store i64 0, ptr @refused
  store i64 0, ptr @making
  call void @llvm.memset.p0.i64(ptr @slots, i8 0, i64 8192, i1 false)
  ret void
}

; The number of a worker in the run of a slot, from 1; 0: it has no place there.
define internal i64 @number(i64 %slot, i64 %index) {
  %s9 = getelementptr [64 x %Slot], ptr @slots, i64 0, i64 %slot, i64 9
  %limit = load atomic i64, ptr %s9 monotonic, align 8
  %s10 = getelementptr [64 x %Slot], ptr @slots, i64 0, i64 %slot, i64 10
  %first = load atomic i64, ptr %s10 monotonic, align 8
  %s11 = getelementptr [64 x %Slot], ptr @slots, i64 0, i64 %slot, i64 11
  %span = load atomic i64, ptr %s11 monotonic, align 8
  %ahead = icmp uge i64 %index, %first
  %wrapped = add i64 %index, %span
  %from = select i1 %ahead, i64 %index, i64 %wrapped
  %place = sub i64 %from, %first
  %known = icmp ult i64 %index, %span
  %within = icmp ult i64 %place, %limit
  %both = and i1 %known, %within
  %thread = add i64 %place, 1
  %number = select i1 %both, i64 %thread, i64 0
  ret i64 %number
}

; An open slot that has a place for a worker, -1 if there is none; those behind `start` first.
define internal i64 @find(i64 %index, i64 %start) {
entry:
  %all = load atomic i64, ptr @open seq_cst, align 8
  %turned = call i64 @llvm.fshr.i64(i64 %all, i64 %all, i64 %start)
  br label %head
head:
  %mask = phi i64 [ %turned, %entry ], [ %rest, %body ]
  %none = icmp eq i64 %mask, 0
  br i1 %none, label %done, label %body
body:
  %bit = call i64 @llvm.cttz.i64(i64 %mask, i1 true)
  %behind = add i64 %bit, %start
  %slot = and i64 %behind, 63
  %less = sub i64 %mask, 1
  %rest = and i64 %mask, %less
  %thread = call i64 @number(i64 %slot, i64 %index)
  %placeless = icmp eq i64 %thread, 0
  br i1 %placeless, label %head, label %done
done:
  %found = phi i64 [ -1, %head ], [ %slot, %body ]
  ret i64 %found
}

; Wake up to `want` of the sleeping workers that have a place in the slot.
define internal void @wake(i64 %slot, i64 %want) {
entry:
  %s9 = getelementptr [64 x %Slot], ptr @slots, i64 0, i64 %slot, i64 9
  %limit = load atomic i64, ptr %s9 monotonic, align 8
  %s10 = getelementptr [64 x %Slot], ptr @slots, i64 0, i64 %slot, i64 10
  %first = load atomic i64, ptr %s10 monotonic, align 8
  %s11 = getelementptr [64 x %Slot], ptr @slots, i64 0, i64 %slot, i64 11
  %span = load atomic i64, ptr %s11 monotonic, align 8
  br label %head
head:
  %k = phi i64 [ 0, %entry ], [ %next, %after ]
  %left = phi i64 [ %want, %entry ], [ %still, %after ]
  %inside = icmp ult i64 %k, %limit
  %wanted = icmp ne i64 %left, 0
  %on = and i1 %inside, %wanted
  br i1 %on, label %body, label %done
body:
  %place = add i64 %first, %k
  %over = icmp uge i64 %place, %span
  %turned = sub i64 %place, %span
  %index = select i1 %over, i64 %turned, i64 %place
  %asleep = getelementptr [${max_workers} x %Worker], ptr @workers, i64 0, i64 %index
  %state = load atomic i64, ptr %asleep monotonic, align 8
  %sleeping = icmp eq i64 %state, 1
  br i1 %sleeping, label %try, label %after
try:
  %exchange = cmpxchg ptr %asleep, i64 1, i64 0 seq_cst seq_cst
  %mine = extractvalue { i64, i1 } %exchange, 1
  br i1 %mine, label %signal, label %after
signal:
  %old = atomicrmw sub ptr @sleepers, i64 1 seq_cst
  %mutex = getelementptr i64, ptr %asleep, i64 8
  %condition = getelementptr i64, ptr %asleep, i64 16
  %e1 = call i32 @pthread_mutex_lock(ptr %mutex)
  %e2 = call i32 @pthread_mutex_unlock(ptr %mutex)
  %e3 = call i32 @pthread_cond_signal(ptr %condition)
  %fewer = sub i64 %left, 1
  br label %after
after:
  %still = phi i64 [ %left, %body ], [ %left, %try ], [ %fewer, %signal ]
  %next = add i64 %k, 1
  br label %head
done:
  ret void
}

; Sleep until there may be work.
define internal void @sleep(i64 %index) {
  %asleep = getelementptr [${max_workers} x %Worker], ptr @workers, i64 0, i64 %index
  %mutex = getelementptr i64, ptr %asleep, i64 8
  %condition = getelementptr i64, ptr %asleep, i64 16
  %e1 = call i32 @pthread_mutex_lock(ptr %mutex)
  store atomic i64 1, ptr %asleep seq_cst, align 8
  %old = atomicrmw add ptr @sleepers, i64 1 seq_cst
  %slot = call i64 @find(i64 %index, i64 0)
  %idle = icmp slt i64 %slot, 0
  br i1 %idle, label %head, label %stay
stay:
  %exchange = cmpxchg ptr %asleep, i64 1, i64 0 seq_cst seq_cst
  %mine = extractvalue { i64, i1 } %exchange, 1
  br i1 %mine, label %uncount, label %head
uncount:
  %before = atomicrmw sub ptr @sleepers, i64 1 seq_cst
  br label %head
head:
  %state = load atomic i64, ptr %asleep acquire, align 8
  %sleeping = icmp eq i64 %state, 1
  br i1 %sleeping, label %wait, label %done
wait:
  %e2 = call i32 @pthread_cond_wait(ptr %condition, ptr %mutex)
  br label %head
done:
  %e3 = call i32 @pthread_mutex_unlock(ptr %mutex)
  ret void
}

; Claim work items of the run's wave and compute them, until there are none.
define internal void @work(ptr %run, i64 %thread) {
entry:
  %r10 = getelementptr i64, ptr %run, i64 10
  %begin = load ptr, ptr %r10
  %r11 = getelementptr i64, ptr %run, i64 11
  %work_items = load i64, ptr %r11
  %counter = getelementptr i64, ptr %run, i64 16
  br label %head
head:
  %from = phi ptr [ %begin, %entry ], [ %step, %ok ], [ %step, %ask ]
  %work_item = atomicrmw add ptr %counter, i64 1 monotonic
  %more = icmp ult i64 %work_item, %work_items
  br i1 %more, label %seek, label %done
seek:
  %step = phi ptr [ %from, %head ], [ %next, %seek ]
  %s4 = getelementptr i64, ptr %step, i64 4
  %behind = load i64, ptr %s4
  %next = getelementptr i64, ptr %step, i64 5
  %here = icmp ult i64 %work_item, %behind
  br i1 %here, label %body, label %seek
body:
  %s3 = getelementptr i64, ptr %step, i64 3
  %first = load i64, ptr %s3
  %own = sub i64 %work_item, %first
  %failed = call i32 @work_item(ptr %run, ptr %step, i64 %own, i64 %thread)
  %good = icmp eq i32 %failed, 0
  br i1 %good, label %ok, label %bad
ok:
  %caller = icmp eq i64 %thread, 0
  br i1 %caller, label %ask, label %head
ask:
  %ends = call i1 @ends(ptr %run)
  br i1 %ends, label %bad, label %head
bad:
  call void @fail(ptr %run, ptr %step)
  store atomic i64 %work_items, ptr %counter monotonic, align 8
  br label %done
done:
  ret void
}

; Join the run of a slot, if it is still open.
define internal void @help(i64 %slot, i64 %index) {
entry:
  %inside = getelementptr [64 x %Slot], ptr @slots, i64 0, i64 %slot
  %old = atomicrmw add ptr %inside, i64 1 seq_cst
  %bit = shl i64 1, %slot
  %mask = load atomic i64, ptr @open seq_cst, align 8
  %held = and i64 %mask, %bit
  %open = icmp ne i64 %held, 0
  %thread = call i64 @number(i64 %slot, i64 %index)
  %placed = icmp ne i64 %thread, 0
  %both = and i1 %open, %placed
  br i1 %both, label %enter, label %leave
enter:
  %s8 = getelementptr i64, ptr %inside, i64 8
  %run = load ptr, ptr %s8
  %others = load atomic i64, ptr @sleepers monotonic, align 8
  %awake = icmp eq i64 %others, 0
  br i1 %awake, label %claim, label %rouse
rouse:
  %r11 = getelementptr i64, ptr %run, i64 11
  %work_items = load i64, ptr %r11
  %counter = getelementptr i64, ptr %run, i64 16
  %claimed = load atomic i64, ptr %counter monotonic, align 8
  %left = sub i64 %work_items, %claimed
  %crowded = icmp slt i64 %left, 2
  br i1 %crowded, label %claim, label %call
call:
  call void @wake(i64 %slot, i64 2)
  br label %claim
claim:
  call void @work(ptr %run, i64 %thread)
  %now = load atomic i64, ptr @open monotonic, align 8
  %still = and i64 %now, %bit
  %closed = icmp eq i64 %still, 0
  br i1 %closed, label %leave, label %close
close:
  ; Nobody else needs to look, while the caller computes its last work item.
  %all = xor i64 %bit, -1
  %was = atomicrmw and ptr @open, i64 %all seq_cst
  br label %leave
leave:
  %count = atomicrmw sub ptr %inside, i64 1 release
  ret void
}

define internal ptr @worker(ptr %argument) {
entry:
  %index = ptrtoint ptr %argument to i64
  %born = call i64 @now()
  br label %top
top:
  %start = phi i64 [ 0, %entry ], [ %after, %help ],
                   [ %start, %look ], [ %start, %yield ], [ %start, %sleep ]
  %since = phi i64 [ %born, %entry ], [ %finished, %help ],
                   [ %since, %look ], [ %since, %yield ], [ %woken, %sleep ]
  %slot = call i64 @find(i64 %index, i64 %start)
  %found = icmp sge i64 %slot, 0
  br i1 %found, label %help, label %spin
help:
  call void @help(i64 %slot, i64 %index)
  %after = add i64 %slot, 1
  %finished = call i64 @now()
  br label %top
spin:
  %k = phi i64 [ 0, %top ], [ %next, %pause ]
  %mask = load atomic i64, ptr @open monotonic, align 8
  %some = icmp ne i64 %mask, 0
  %enough = icmp eq i64 %k, 16
  %stop = or i1 %some, %enough
  br i1 %stop, label %look, label %pause
pause:
  call void @pause()
  %next = add i64 %k, 1
  br label %spin
look:
  %time = call i64 @now()
  %idle = sub i64 %time, %since
  %polite = icmp ugt i64 %idle, ${polite_ns}
  br i1 %polite, label %tired, label %top
tired:
  %late = icmp ugt i64 %idle, ${spin_ns}
  br i1 %late, label %sleep, label %yield
yield:
  %e = call i32 @sched_yield()
  %back = call i64 @now()
  %away = sub i64 %back, %time
  %contended = icmp ugt i64 %away, ${contended_ns}
  br i1 %contended, label %sleep, label %top
sleep:
  call void @sleep(i64 %index)
  %woken = call i64 @now()
  br label %top
}

; Make workers until there are `count`, or the system refuses.
define internal void @ensure(i64 %count) {
entry:
  %signals = alloca [16 x i64]
  %before = alloca [16 x i64]
  br label %lock
lock:
  %exchange = cmpxchg ptr @making, i64 0, i64 1 acquire monotonic
  %mine = extractvalue { i64, i1 } %exchange, 1
  br i1 %mine, label %locked, label %wait
wait:
  %e0 = call i32 @sched_yield()
  br label %lock
locked:
  ; Signals are for the threads of Python.
  %e1 = call i32 @sigfillset(ptr %signals)
  %e2 = call i32 @pthread_sigmask(i32 ${block}, ptr %signals, ptr %before)
  call void @note_processors()
  br label %head
head:
  %index = load i64, ptr @created
  %more = icmp ult i64 %index, %count
  br i1 %more, label %body, label %done
body:
  %worker = getelementptr [${max_workers} x %Worker], ptr @workers, i64 0, i64 %index
  %mutex = getelementptr i64, ptr %worker, i64 8
  %condition = getelementptr i64, ptr %worker, i64 16
  %thread = getelementptr i64, ptr %worker, i64 24
  %off = getelementptr i64, ptr %worker, i64 25
  store i64 0, ptr %worker
  store i64 0, ptr %off
  %e3 = call i32 @pthread_mutex_init(ptr %mutex, ptr null)
  %e4 = call i32 @pthread_cond_init(ptr %condition, ptr null)
  %argument = inttoptr i64 %index to ptr
  %failed = call i32 @pthread_create(ptr %thread, ptr null, ptr @worker, ptr %argument)
  %good = icmp eq i32 %failed, 0
  br i1 %good, label %made, label %denied
made:
  %handle = load ptr, ptr %thread
  %e5 = call i32 @pthread_detach(ptr %handle)
  %next = add i64 %index, 1
  store atomic i64 %next, ptr @created release, align 8
  br label %head
denied:
  store atomic i64 1, ptr @refused monotonic, align 8
  br label %done
done:
  %e6 = call i32 @pthread_sigmask(i32 ${restore}, ptr %before, ptr null)
  store atomic i64 0, ptr @making release, align 8
  ret void
}

; A slot for a run; -1: there is none, or there are no workers.
define internal i64 @acquire(ptr %run) {
entry:
  %r8 = getelementptr i64, ptr %run, i64 8
  %threads = load i64, ptr %r8
  %others = sub i64 %threads, 1
  %want = call i64 @llvm.umin.i64(i64 %others, i64 ${max_workers})
  %there = load atomic i64, ptr @created acquire, align 8
  %refused = load atomic i64, ptr @refused monotonic, align 8
  %few = icmp ult i64 %there, %want
  %may = icmp eq i64 %refused, 0
  %make = and i1 %few, %may
  br i1 %make, label %hire, label %hired
hire:
  call void @ensure(i64 %want)
  br label %hired
hired:
  %span = load atomic i64, ptr @created acquire, align 8
  %deserted = icmp eq i64 %span, 0
  br i1 %deserted, label %none, label %choose
choose:
  %free = load atomic i64, ptr @free monotonic, align 8
  %full = icmp eq i64 %free, 0
  br i1 %full, label %none, label %take
take:
  %less = sub i64 %free, 1
  %rest = and i64 %free, %less
  %exchange = cmpxchg ptr @free, i64 %free, i64 %rest acquire monotonic
  %mine = extractvalue { i64, i1 } %exchange, 1
  br i1 %mine, label %taken, label %choose
taken:
  %slot = call i64 @llvm.cttz.i64(i64 %free, i1 true)
  %limit = call i64 @llvm.umin.i64(i64 %others, i64 %span)
  ; Runs that are at work together and allow few threads get different workers.
  %spread = mul i64 %slot, %limit
  %first = urem i64 %spread, %span
  %s8 = getelementptr [64 x %Slot], ptr @slots, i64 0, i64 %slot, i64 8
  store ptr %run, ptr %s8
  %s9 = getelementptr i64, ptr %s8, i64 1
  store atomic i64 %limit, ptr %s9 monotonic, align 8
  %s10 = getelementptr i64, ptr %s8, i64 2
  store atomic i64 %first, ptr %s10 monotonic, align 8
  %s11 = getelementptr i64, ptr %s8, i64 3
  store atomic i64 %span, ptr %s11 monotonic, align 8
  ; Of several runs at once, each would send the workers to the others.
  %only = icmp eq i64 %free, -1
  br i1 %only, label %clear, label %ready
clear:
  call void @keep_off(i64 %first, i64 %limit, i64 %span)
  br label %ready
ready:
  ret i64 %slot
none:
  ret i64 -1
}

define internal void @release(i64 %slot) {
  %bit = shl i64 1, %slot
  %old = atomicrmw or ptr @free, i64 %bit release
  ret void
}

define internal void @parallel(ptr %run, ptr %wave, i64 %slot) {
entry:
  %begin = load ptr, ptr %wave
  %w2 = getelementptr i64, ptr %wave, i64 2
  %work_items = load i64, ptr %w2
  %r10 = getelementptr i64, ptr %run, i64 10
  store ptr %begin, ptr %r10
  %r11 = getelementptr i64, ptr %run, i64 11
  store i64 %work_items, ptr %r11
  %counter = getelementptr i64, ptr %run, i64 16
  store atomic i64 0, ptr %counter monotonic, align 8
  %bit = shl i64 1, %slot
  %was = atomicrmw or ptr @open, i64 %bit seq_cst
  %asleep = load atomic i64, ptr @sleepers seq_cst, align 8
  %awake = icmp eq i64 %asleep, 0
  br i1 %awake, label %claim, label %rouse
rouse:
  %others = sub i64 %work_items, 1
  %want = call i64 @llvm.umin.i64(i64 %others, i64 2)
  call void @wake(i64 %slot, i64 %want)
  br label %claim
claim:
  call void @work(ptr %run, i64 0)
  %all = xor i64 %bit, -1
  %old = atomicrmw and ptr @open, i64 %all seq_cst
  %inside = getelementptr [64 x %Slot], ptr @slots, i64 0, i64 %slot
  br label %head
head:
  %k = phi i64 [ 0, %claim ], [ %next, %spin ], [ %next, %yield ], [ %next, %end ]
  %helpers = load atomic i64, ptr %inside seq_cst, align 8
  %alone = icmp eq i64 %helpers, 0
  br i1 %alone, label %done, label %more
more:
  %next = add i64 %k, 1
  %long = icmp ugt i64 %k, ${join_spins}
  br i1 %long, label %yield, label %spin
spin:
  call void @pause()
  br label %head
yield:
  ; A worker may wait for the core that this thread sits on.
  %e = call i32 @sched_yield()
  %ends = call i1 @ends(ptr %run)
  br i1 %ends, label %end, label %head
end:
  call void @fail(ptr %run, ptr %begin)
  store atomic i64 %work_items, ptr %counter monotonic, align 8
  br label %head
done:
  ret void
}
