; What stands in for the pool where there are no POSIX threads: the caller computes everything.

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
