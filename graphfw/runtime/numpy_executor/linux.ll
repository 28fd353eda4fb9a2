
; Keeping workers off the caller's processor, on Linux.
;
; A worker that is woken, or spins, on the processor of the caller can't run before the caller waits
; for it, and the system leaves it there for milliseconds. So the caller of a run forbids its
; processor to the workers, unless it has done so in an earlier run.

@allowed = internal global <16 x i64> zeroinitializer, align 128
declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare i32 @pthread_setaffinity_np(i64, i64, ptr)
declare i64 @llvm.vector.reduce.or.v16i64(<16 x i64>)

define internal void @note_processors() {
  ; Where it fails (more than 1024 processors) nothing is allowed, and nothing forbidden later.
  %e = call i32 @sched_getaffinity(i32 0, i64 128, ptr @allowed)
  ret void
}

define internal void @keep_off(i64 %first, i64 %limit, i64 %span) {
entry:
  %mask = alloca <16 x i64>, align 128
  %processor = call i32 @sched_getcpu()
  %own = zext i32 %processor to i64
  %numbered = icmp ult i64 %own, 1024
  br i1 %numbered, label %begin, label %done
begin:
  %mark = add i64 %own, 1
  br label %head
head:
  %k = phi i64 [ 0, %begin ], [ %next, %after ]
  %moved = phi i64 [ 0, %begin ], [ %sum, %after ]
  %inside = icmp ult i64 %k, %limit
  ; A few in each run: with many workers it takes a while.
  %few = icmp ult i64 %moved, 4
  %on = and i1 %inside, %few
  br i1 %on, label %body, label %done
body:
  %next = add i64 %k, 1
  %place = add i64 %first, %k
  %over = icmp uge i64 %place, %span
  %turned = sub i64 %place, %span
  %index = select i1 %over, i64 %turned, i64 %place
  %off = getelementptr [${max_workers} x %Worker], ptr @workers, i64 0, i64 %index, i64 25
  %from = load atomic i64, ptr %off monotonic, align 8
  %there = icmp eq i64 %from, %mark
  br i1 %there, label %after, label %forbid
forbid:
  %all = load <16 x i64>, ptr @allowed
  store <16 x i64> %all, ptr %mask
  %word = lshr i64 %own, 6
  %at = getelementptr i64, ptr %mask, i64 %word
  %bit = and i64 %own, 63
  %one = shl i64 1, %bit
  %others = xor i64 %one, -1
  %old = load i64, ptr %at
  %new = and i64 %old, %others
  store i64 %new, ptr %at
  %rest = load <16 x i64>, ptr %mask
  %any = call i64 @llvm.vector.reduce.or.v16i64(<16 x i64> %rest)
  %none = icmp eq i64 %any, 0
  br i1 %none, label %done, label %move
move:
  store atomic i64 %mark, ptr %off monotonic, align 8
  %handle_at = getelementptr [${max_workers} x %Worker], ptr @workers, i64 0, i64 %index, i64 24
  %handle = load i64, ptr %handle_at
  %e = call i32 @pthread_setaffinity_np(i64 %handle, i64 128, ptr %mask)
  br label %after
after:
  %add = phi i64 [ 0, %body ], [ 1, %move ]
  %sum = add i64 %moved, %add
  br label %head
done:
  ret void
}
