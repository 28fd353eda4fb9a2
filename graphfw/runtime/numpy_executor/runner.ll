; The runner: computes all waves of a plan in one call. Compiled and cached like any kernel.
; A step is `i32 (ptr operands, ptr params, i64 work item, ptr scratch, ptr run, i64 thread)`, of which
; only those that may take long need the last two: they ask whether to end.
; `runner.py` lays out what it reads. Offsets, in i64 words:
;
;   step    0 address  1 first operand  2 address of the params  3 first work item in its wave  4 last + 1
;   wave    0 address of the first step  1 address behind the last step  2 work items  3 parallel
;   operand 0 base number  1 byte offset
;   stretch 0 run  1 first wave  2 behind the last  3 first operand  4 operands  5 parallel
;           6 Python's lock: 0 is given up meanwhile, 1 kept, 2 the caller has given it up
;   run     0 steps  1 waves  2 operands  3 bases  4 first base of the arrays  5 resolved pointers
;           6 scratch memory  7 its bytes a thread  8 threads  9 records, or null
;          10 first step of the wave  11 work items of the wave  12 the step that failed + 1
;          13 how many arrays there may be  14 what asks whether to end: see `poll.ll`
;          15 what that looks at
;          16 the next work item, in a cache line of its own
;          32 where it is said when to ask next, in ticks, or 0 before a first look
;          33 work items until that is looked at  34 the first wave that writes over variables, from which
;          on nobody asks  35 the wave  36 Python's state of the thread, where its lock was given up
;          37 whether it is kept
;   records 0 count  1 capacity  8... per work item: step, thread, work item, start, end

define internal i32 @work_item(ptr %run, ptr %step, i64 %work_item, i64 %thread) alwaysinline {
  %address = load ptr, ptr %step
  %p1 = getelementptr i64, ptr %step, i64 1
  %operand = load i64, ptr %p1
  %p2 = getelementptr i64, ptr %step, i64 2
  %params = load ptr, ptr %p2
  %r5 = getelementptr i64, ptr %run, i64 5
  %resolved = load ptr, ptr %r5
  %buffers = getelementptr ptr, ptr %resolved, i64 %operand
  %r6 = getelementptr i64, ptr %run, i64 6
  %memory = load ptr, ptr %r6
  %r7 = getelementptr i64, ptr %run, i64 7
  %bytes = load i64, ptr %r7
  %offset = mul i64 %bytes, %thread
  %scratch = getelementptr i8, ptr %memory, i64 %offset
  %r9 = getelementptr i64, ptr %run, i64 9
  %records = load ptr, ptr %r9
  %plain = icmp eq ptr %records, null
  br i1 %plain, label %fast, label %timed
fast:
  %failed = call i32 %address(ptr %buffers, ptr %params, i64 %work_item, ptr %scratch, ptr %run, i64 %thread)
  ret i32 %failed
timed:
  %start = call i64 @now()
  %bad = call i32 %address(ptr %buffers, ptr %params, i64 %work_item, ptr %scratch, ptr %run, i64 %thread)
  %end = call i64 @now()
  %number = atomicrmw add ptr %records, i64 1 monotonic
  %r1 = getelementptr i64, ptr %records, i64 1
  %capacity = load i64, ptr %r1
  %fits = icmp ult i64 %number, %capacity
  br i1 %fits, label %note, label %noted
note:
  %first = mul i64 %number, 5
  %behind = add i64 %first, 8
  %t0 = getelementptr i64, ptr %records, i64 %behind
  %index = call i64 @index(ptr %run, ptr %step)
  store i64 %index, ptr %t0
  %t1 = getelementptr i64, ptr %t0, i64 1
  store i64 %thread, ptr %t1
  %t2 = getelementptr i64, ptr %t0, i64 2
  store i64 %work_item, ptr %t2
  %t3 = getelementptr i64, ptr %t0, i64 3
  store i64 %start, ptr %t3
  %t4 = getelementptr i64, ptr %t0, i64 4
  store i64 %end, ptr %t4
  br label %noted
noted:
  ret i32 %bad
}

define internal i64 @index(ptr %run, ptr %step) {
  %steps = load i64, ptr %run
  %here = ptrtoint ptr %step to i64
  %bytes = sub i64 %here, %steps
  %index = udiv i64 %bytes, 40
  ret i64 %index
}

define internal void @fail(ptr %run, ptr %step) {
  %index = call i64 @index(ptr %run, ptr %step)
  %number = add i64 %index, 1
  %r12 = getelementptr i64, ptr %run, i64 12
  %old = cmpxchg ptr %r12, i64 0, i64 %number monotonic monotonic
  ret void
}

; Whether the run should end: the caller's thread asks.
define internal i1 @ends(ptr %run) alwaysinline {
  %r14 = getelementptr i64, ptr %run, i64 14
  %poll = load ptr, ptr %r14
  %answer = call i32 %poll(ptr %run, i64 0)
  %ends = icmp ne i32 %answer, 0
  ret i1 %ends
}

; Compute a wave in the caller's thread. It asks after each work item whether to end, or, where these are
; little work, after ${many}.
define internal void @serial(ptr %run, ptr %wave) {
entry:
  %w3 = getelementptr i64, ptr %wave, i64 3
  %parallel = load i64, ptr %w3
  %little = icmp eq i64 %parallel, 0
  %many = select i1 %little, i64 ${many}, i64 1
  %left_at = getelementptr i64, ptr %run, i64 33
  ; What a wave of little work has left of its many work items is too long a wait for long ones.
  %before = load i64, ptr %left_at
  %fits = icmp sle i64 %before, %many
  %first = select i1 %fits, i64 %before, i64 %many
  store i64 %first, ptr %left_at
  %w1 = getelementptr i64, ptr %wave, i64 1
  %end = load ptr, ptr %w1
  %begin = load ptr, ptr %wave
  br label %steps
steps:
  %step = phi ptr [ %begin, %entry ], [ %next, %step_done ]
  %all = icmp eq ptr %step, %end
  br i1 %all, label %done, label %open
open:
  %s3 = getelementptr i64, ptr %step, i64 3
  %from = load i64, ptr %s3
  %s4 = getelementptr i64, ptr %step, i64 4
  %to = load i64, ptr %s4
  %work_items = sub i64 %to, %from
  br label %head
head:
  %work_item = phi i64 [ 0, %open ], [ %after, %another ]
  %more = icmp ult i64 %work_item, %work_items
  br i1 %more, label %body, label %step_done
body:
  %failed = call i32 @work_item(ptr %run, ptr %step, i64 %work_item, i64 0)
  %good = icmp eq i32 %failed, 0
  br i1 %good, label %ok, label %bad
ok:
  %left = load i64, ptr %left_at
  %fewer = sub i64 %left, 1
  %look = icmp slt i64 %fewer, 1
  %until = select i1 %look, i64 %many, i64 %fewer
  store i64 %until, ptr %left_at
  br i1 %look, label %ask, label %another
ask:
  %ends = call i1 @ends(ptr %run)
  br i1 %ends, label %bad, label %another
another:
  %after = add i64 %work_item, 1
  br label %head
step_done:
  %next = getelementptr i64, ptr %step, i64 5
  br label %steps
bad:
  call void @fail(ptr %run, ptr %step)
  ret void
done:
  ret void
}

define internal i64 @bind(ptr %run, ptr %arrays, i64 %count) {
entry:
  %r3 = getelementptr i64, ptr %run, i64 3
  %bases = load ptr, ptr %r3
  %r4 = getelementptr i64, ptr %run, i64 4
  %first = load i64, ptr %r4
  %target = getelementptr i64, ptr %bases, i64 %first
  %r13 = getelementptr i64, ptr %run, i64 13
  %room = load i64, ptr %r13
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %good ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %body, label %done
body:
  %next = add i64 %i, 1
  %fits = icmp ult i64 %i, %room
  br i1 %fits, label %look, label %bad
look:
  %item = getelementptr ptr, ptr %arrays, i64 %i
  %array = load ptr, ptr %item
  %data = call i64 @elements(ptr %array)
  %refused = icmp eq i64 %data, -1
  br i1 %refused, label %bad, label %good
good:
  %base = getelementptr i64, ptr %target, i64 %i
  store i64 %data, ptr %base
  br label %head
bad:
  %negative = sub i64 0, %next
  ret i64 %negative
done:
  ret i64 0
}

define internal void @resolve(ptr %run, ptr %stretch) {
entry:
  %r2 = getelementptr i64, ptr %run, i64 2
  %operands = load ptr, ptr %r2
  %r3 = getelementptr i64, ptr %run, i64 3
  %bases = load ptr, ptr %r3
  %r5 = getelementptr i64, ptr %run, i64 5
  %resolved = load ptr, ptr %r5
  %s3 = getelementptr i64, ptr %stretch, i64 3
  %first = load i64, ptr %s3
  %s4 = getelementptr i64, ptr %stretch, i64 4
  %count = load i64, ptr %s4
  %last = add i64 %first, %count
  br label %head
head:
  %i = phi i64 [ %first, %entry ], [ %next, %body ]
  %more = icmp ult i64 %i, %last
  br i1 %more, label %body, label %done
body:
  %twice = shl i64 %i, 1
  %operand = getelementptr i64, ptr %operands, i64 %twice
  %number = load i64, ptr %operand
  %offset_at = getelementptr i64, ptr %operand, i64 1
  %offset = load i64, ptr %offset_at
  %base_at = getelementptr i64, ptr %bases, i64 %number
  %base = load i64, ptr %base_at
  %address = add i64 %base, %offset
  %target = getelementptr i64, ptr %resolved, i64 %i
  store i64 %address, ptr %target
  %next = add i64 %i, 1
  br label %head
done:
  ret void
}

define internal i64 @compute(ptr %stretch, ptr %tuple) alwaysinline {
begin:
  %run = load ptr, ptr %stretch
  %length_at = getelementptr i8, ptr %tuple, i64 16
  %length = load i64, ptr %length_at
  %items = getelementptr i8, ptr %tuple, i64 ${items_offset}
  %refused = call i64 @bind(ptr %run, ptr %items, i64 %length)
  %bound = icmp eq i64 %refused, 0
  br i1 %bound, label %start, label %unbound
unbound:
  ret i64 %refused
start:
  call void @resolve(ptr %run, ptr %stretch)
  %error = getelementptr i64, ptr %run, i64 12
  store i64 0, ptr %error
  %s1 = getelementptr i64, ptr %stretch, i64 1
  %first = load i64, ptr %s1
  %s2 = getelementptr i64, ptr %stretch, i64 2
  %last = load i64, ptr %s2
  %r1 = getelementptr i64, ptr %run, i64 1
  %waves = load ptr, ptr %r1
  %s5 = getelementptr i64, ptr %stretch, i64 5
  %wide = load i64, ptr %s5
  %alone = icmp eq i64 %wide, 0
  br i1 %alone, label %enter, label %acquire
acquire:
  %taken = call i64 @acquire(ptr %run)
  br label %enter
enter:
  %slot = phi i64 [ -1, %start ], [ %taken, %acquire ]
  %slotless = icmp slt i64 %slot, 0
  %r35 = getelementptr i64, ptr %run, i64 35
  br label %head
head:
  %i = phi i64 [ %first, %enter ], [ %next, %computed ]
  %more = icmp ult i64 %i, %last
  br i1 %more, label %body, label %leave
body:
  store i64 %i, ptr %r35
  %word = shl i64 %i, 2
  %wave = getelementptr i64, ptr %waves, i64 %word
  %w3 = getelementptr i64, ptr %wave, i64 3
  %parallel = load i64, ptr %w3
  %narrow = icmp eq i64 %parallel, 0
  %lonely = or i1 %narrow, %slotless
  br i1 %lonely, label %one, label %many
one:
  call void @serial(ptr %run, ptr %wave)
  br label %computed
many:
  call void @parallel(ptr %run, ptr %wave, i64 %slot)
  br label %computed
computed:
  %failed = load atomic i64, ptr %error monotonic, align 8
  %next = add i64 %i, 1
  %fine = icmp eq i64 %failed, 0
  br i1 %fine, label %head, label %leave
leave:
  %result = phi i64 [ 0, %head ], [ %failed, %computed ]
  br i1 %slotless, label %left, label %release
release:
  call void @release(i64 %slot)
  br label %left
left:
  ret i64 %result
}

; What Python calls, and loops for each iteration. Without a stretch: forget all workers, which a forked
; process does not have.
define i64 @${symbol}(ptr %stretch, ptr %tuple) {
entry:
  %forked = icmp eq ptr %stretch, null
  br i1 %forked, label %forget, label %begin
forget:
  call void @reset()
  ret i64 0
begin:
  %run = load ptr, ptr %stretch
  %s6 = getelementptr i64, ptr %stretch, i64 6
  %lock = load i64, ptr %s6
  %kept = icmp eq i64 %lock, 1
  %keeps = zext i1 %kept to i64
  %r37 = getelementptr i64, ptr %run, i64 37
  store i64 %keeps, ptr %r37
  %r36 = getelementptr i64, ptr %run, i64 36
  %is_split = icmp eq i64 %lock, 2
  br i1 %is_split, label %compute, label %whole
whole:
  %r32 = getelementptr i64, ptr %run, i64 32
  %due_at = load ptr, ptr %r32
  store i64 0, ptr %due_at
  br i1 %kept, label %compute, label %give
give:
  %r15 = getelementptr i64, ptr %run, i64 15
  %watch = load ptr, ptr %r15
  %w8 = getelementptr i64, ptr %watch, i64 8
  %save = load ptr, ptr %w8
  %state = call ptr %save()
  store ptr %state, ptr %r36
  br label %compute
compute:
  %result = call i64 @compute(ptr %stretch, ptr %tuple)
  %saved = load ptr, ptr %r36
  %held = icmp eq ptr %saved, null
  br i1 %held, label %done, label %take
take:
  store ptr null, ptr %r36
  %again = getelementptr i64, ptr %run, i64 15
  %same = load ptr, ptr %again
  %w9 = getelementptr i64, ptr %same, i64 9
  %restore = load ptr, ptr %w9
  call void %restore(ptr %saved)
  br label %done
done:
  ret i64 %result
}
