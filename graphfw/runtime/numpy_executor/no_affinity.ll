; What stands in for `linux.ll` where threads can't be kept off a processor.

define internal void @note_processors() {
  ret void
}

define internal void @keep_off(i64 %first, i64 %limit, i64 %span) {
  ret void
}
