; What stands in for the pool where there are no POSIX threads: the caller computes everything.

declare i32 @QueryPerformanceCounter(ptr)

define internal i64 @acquire(ptr %run) {
  ret i64 -1
}
define internal void @release(i64 %slot) {
  ret void
}
define internal void @parallel(ptr %run, ptr %wave, i64 %slot) {
  call void @serial(ptr %run, ptr %wave)
  ret void
}
define internal void @reset() {
  ret void
}

; The counter runs at 10 MHz on every Windows since 10.
define internal i64 @now() {
  %time = alloca i64
  %unused = call i32 @QueryPerformanceCounter(ptr %time)
  %ticks = load i64, ptr %time
  %sum = mul i64 %ticks, 100
  ret i64 %sum
}
