; The clocks. `@now` gives ns of a clock that only goes forward; `@ticks` what a processor counts
; more quickly, of which ${period} pass in about 10 ms.

declare i32 @clock_gettime(i32, ptr)
declare i64 @llvm.readcyclecounter()

define internal i64 @now() {
  %time = alloca [2 x i64]
  %unused = call i32 @clock_gettime(i32 ${clock}, ptr %time)
  %seconds = load i64, ptr %time
  %rest_at = getelementptr i64, ptr %time, i64 1
  %rest = load i64, ptr %rest_at
  %whole = mul i64 %seconds, 1000000000
  %sum = add i64 %whole, %rest
  ret i64 %sum
}

define internal i64 @ticks() alwaysinline {
  %ticks = call i64 ${ticks}()
  ret i64 %ticks
}
