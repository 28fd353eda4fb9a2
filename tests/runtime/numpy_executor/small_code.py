"""Hand-written native functions for the tests of the engine and the runner."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SmallCode:
    """A function given by the lines of its body, which may use %b, %p, %work_item and %s."""

    name: str
    body: str
    declarations: str = ""

    @property
    def key(self) -> str:
        return f"test {self}"

    def llvm(self, symbol: str) -> str:
        head = f"define i32 @{symbol}(ptr %b, ptr %p, i64 %work_item, ptr %s)"
        return f"{self.declarations}\n{head} {{\nentry:\n{self.body}\n}}\n"


# Each work item is one int64 element: b1[work item] = b0[work item] + p0.
ADD = SmallCode(
    "add",
    """
  %x = load ptr, ptr %b
  %y_at = getelementptr ptr, ptr %b, i64 1
  %y = load ptr, ptr %y_at
  %amount = load i64, ptr %p
  %from = getelementptr i64, ptr %x, i64 %work_item
  %to = getelementptr i64, ptr %y, i64 %work_item
  %value = load i64, ptr %from
  %sum = add i64 %value, %amount
  store i64 %sum, ptr %to
  ret i32 0""",
)

# Counts to p0.
SPIN = SmallCode(
    "spin",
    """
  %end = load i64, ptr %p
  %kept = alloca i64
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %head ]
  %next = add i64 %i, 1
  store volatile i64 %next, ptr %kept
  %more = icmp ult i64 %next, %end
  br i1 %more, label %head, label %done
done:
  ret i32 0""",
)

# Counts in b0[0] how many work items were begun, and fails in work item p0.
FAIL = SmallCode(
    "fail",
    """
  %count = load ptr, ptr %b
  %old = atomicrmw add ptr %count, i64 1 monotonic
  %which = load i64, ptr %p
  %here = icmp eq i64 %which, %work_item
  %failed = select i1 %here, i32 7, i32 0
  ret i32 %failed""",
)

# Writes the work item to p0 words of scratch memory, then fails unless it finds it in all of them,
# and unless the memory is aligned to 64 bytes.
SCRATCH = SmallCode(
    "scratch",
    """
  %end = load i64, ptr %p
  %place = ptrtoint ptr %s to i64
  %rest = and i64 %place, 63
  br label %write
write:
  %i = phi i64 [ 0, %entry ], [ %i1, %write ]
  %to = getelementptr i64, ptr %s, i64 %i
  store volatile i64 %work_item, ptr %to
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %end
  br i1 %more, label %write, label %read
read:
  %j = phi i64 [ 0, %write ], [ %j1, %read ]
  %bad = phi i64 [ %rest, %write ], [ %worse, %read ]
  %from = getelementptr i64, ptr %s, i64 %j
  %value = load volatile i64, ptr %from
  %difference = xor i64 %value, %work_item
  %worse = or i64 %bad, %difference
  %j1 = add i64 %j, 1
  %on = icmp ult i64 %j1, %end
  br i1 %on, label %read, label %done
done:
  %wrong = icmp ne i64 %worse, 0
  %failed = zext i1 %wrong to i32
  ret i32 %failed""",
)


def constant(value: int, declarations: str = "") -> SmallCode:
    """Return a function that returns `value`."""
    return SmallCode("constant", f"  ret i32 {value}", declarations)
