; Return where the elements of an array lie, or -1: they are not in C order, or not aligned.
define internal i64 @elements(ptr %array) alwaysinline {
  %flags_at = getelementptr i8, ptr %array, i64 ${flags_offset}
  %flags = load i32, ptr %flags_at
  %held = and i32 %flags, 257
  %fine = icmp eq i32 %held, 257
  %data_at = getelementptr i8, ptr %array, i64 ${data_offset}
  %data = load i64, ptr %data_at
  %address = select i1 %fine, i64 %data, i64 -1
  ret i64 %address
}
