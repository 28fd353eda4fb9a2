; What stands in for `clock.ll` on Windows, whose counter runs at 10 MHz on every version since 10.

declare i32 @QueryPerformanceCounter(ptr)
declare i64 @llvm.readcyclecounter()

define internal i64 @now() {
  %time = alloca i64
  %unused = call i32 @QueryPerformanceCounter(ptr %time)
  %ticks = load i64, ptr %time
  %sum = mul i64 %ticks, 100
  ret i64 %sum
}

define internal i64 @ticks() alwaysinline {
  %ticks = call i64 ${ticks}()
  ret i64 %ticks
}
