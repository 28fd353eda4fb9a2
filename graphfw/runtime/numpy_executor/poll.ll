; Whether a native call should end: a signal handler has raised an error, or the time of the run is
; over. `watch.py` lays out what is read here. Offsets, in i64 words:
;
;   watch    0 the main thread  1 the time limits  2 counts forks, in a child
;            3 what a run raises whose time is over
;            4 PyGILState_Ensure  5 PyGILState_Release  6 PyErr_CheckSignals  7 PyErr_SetNone
;            8 PyEval_SaveThread  9 PyEval_RestoreThread  10 what a run raises in a child
;   limit    0 the thread whose runs it is for, or 0  1 when they end, in ns; the first one has how
;            many come after it
;
; Of a run it reads and writes words 12, 15 and 32 to 37: see `runner.ll`.

declare ${thread} @${thread_self}()

; Whether the time limit of a thread has passed.
define internal i1 @expired(ptr %watch, i64 %thread) {
entry:
  %w1 = getelementptr i64, ptr %watch, i64 1
  %limits = load ptr, ptr %w1
  %count = load i64, ptr %limits
  br label %head
head:
  %i = phi i64 [ 1, %entry ], [ %next, %body ], [ %next, %own ]
  %more = icmp ule i64 %i, %count
  br i1 %more, label %body, label %no
body:
  %next = add i64 %i, 1
  %word = shl i64 %i, 1
  %limit = getelementptr i64, ptr %limits, i64 %word
  %whose = load i64, ptr %limit
  %mine = icmp eq i64 %whose, %thread
  br i1 %mine, label %own, label %head
own:
  %end_at = getelementptr i64, ptr %limit, i64 1
  %end = load i64, ptr %end_at
  %time = call i64 @now()
  %over = icmp sge i64 %time, %end
  br i1 %over, label %yes, label %head
yes:
  ret i1 1
no:
  ret i1 0
}

; Return 1 to end, with Python's error set. Thread 0, which Python has called, asks; the others
; learn of it by word 12 of the run.
define i32 @${symbol}(ptr %run, i64 %number) {
entry:
  %r12 = getelementptr i64, ptr %run, i64 12
  %failed = load atomic i64, ptr %r12 monotonic, align 8
  %ended = icmp ne i64 %failed, 0
  br i1 %ended, label %end, label %look
look:
  %asks = icmp eq i64 %number, 0
  br i1 %asks, label %time, label %go_on
time:
  %begin = call i64 @ticks()
  %r32 = getelementptr i64, ptr %run, i64 32
  %due_at = load ptr, ptr %r32
  %due = load i64, ptr %due_at
  %later = add i64 %begin, ${period}
  %early = icmp ult i64 %begin, %due
  br i1 %early, label %go_on, label %know
know:
  %first = icmp eq i64 %due, 0
  store i64 %later, ptr %due_at
  br i1 %first, label %go_on, label %ask
ask:
  %r34 = getelementptr i64, ptr %run, i64 34
  %last = load i64, ptr %r34
  %r35 = getelementptr i64, ptr %run, i64 35
  %wave = load i64, ptr %r35
  %writes = icmp uge i64 %wave, %last
  br i1 %writes, label %go_on, label %find
find:
  %r15 = getelementptr i64, ptr %run, i64 15
  %watch = load ptr, ptr %r15
  %self = call ${thread} @${thread_self}()
  %thread = ${widened}
  %over = call i1 @expired(ptr %watch, i64 %thread)
  %main = load i64, ptr %watch
  %handles = icmp eq i64 %main, %thread
  %concerned = or i1 %over, %handles
  br i1 %concerned, label %lock, label %go_on
lock:
  %w4 = getelementptr i64, ptr %watch, i64 4
  %ensure = load ptr, ptr %w4
  %state = call i32 %ensure()
  br i1 %handles, label %signals, label %limit
signals:
  %w6 = getelementptr i64, ptr %watch, i64 6
  %check_signals = load ptr, ptr %w6
  %w2 = getelementptr i64, ptr %watch, i64 2
  %forks = load i64, ptr %w2
  %raised = call i32 %check_signals()
  %quiet = icmp eq i32 %raised, 0
  br i1 %quiet, label %whole, label %raise
whole:
  ; A handler may have forked: the child does not have the threads that compute work items.
  %forks_now = load i64, ptr %w2
  %same = icmp eq i64 %forks, %forks_now
  br i1 %same, label %limit, label %set
limit:
  br i1 %over, label %set, label %unlock
set:
  %which = phi i64 [ 10, %whole ], [ 3, %limit ]
  %kind_at = getelementptr i64, ptr %watch, i64 %which
  %kind = load ptr, ptr %kind_at
  %w7 = getelementptr i64, ptr %watch, i64 7
  %set_none = load ptr, ptr %w7
  call void %set_none(ptr %kind)
  br label %raise
raise:
  br label %unlock
unlock:
  %result = phi i32 [ 0, %limit ], [ 1, %raise ]
  %w5 = getelementptr i64, ptr %watch, i64 5
  %release = load ptr, ptr %w5
  call void %release(i32 %state)
  ; Waiting for other threads of Python must not take much of the time.
  %after = call i64 @ticks()
  %waited = sub i64 %after, %begin
  %eight = shl i64 %waited, 3
  %least = call i64 @llvm.umax.i64(i64 %eight, i64 ${period})
  %pause = call i64 @llvm.umin.i64(i64 %least, i64 ${longest})
  %again = add i64 %after, %pause
  store i64 %again, ptr %due_at
  ; A call that has taken so long no longer keeps Python's lock.
  %r37 = getelementptr i64, ptr %run, i64 37
  %held = load i64, ptr %r37
  %keeps = icmp ne i64 %held, 0
  br i1 %keeps, label %yield, label %done
yield:
  store i64 0, ptr %r37
  %w8 = getelementptr i64, ptr %watch, i64 8
  %save = load ptr, ptr %w8
  %saved = call ptr %save()
  %r36 = getelementptr i64, ptr %run, i64 36
  store ptr %saved, ptr %r36
  br label %done
done:
  ret i32 %result
go_on:
  ret i32 0
end:
  ret i32 1
}

declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)
