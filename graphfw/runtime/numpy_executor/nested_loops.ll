; A body with loops inside: its stretches and its loops, one after the other. `nested_loops.py`
; lays out what is read here. Offsets, in i64 words:
;
;   chain    0 how many links  1 links  2 the runner  3 the function of loops
;   link     0 its kind: 0 addresses, 1 copies, 2 a stretch, 3 a loop
;            1 its table, or its rows  2 how many rows
;   address  0 where an address is  1 what is added to it  2 where the sum goes
;   copy     0 where an address is  1 what is added to it for the source  2 where another is
;            3 what is added to it for the target  4 bytes

declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)

define internal void @point(ptr %rows, i64 %count) {
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %body, label %done
body:
  %word = mul i64 %i, 3
  %row = getelementptr i64, ptr %rows, i64 %word
  %from_at = load ptr, ptr %row
  %from = load i64, ptr %from_at
  %row1 = getelementptr i64, ptr %row, i64 1
  %offset = load i64, ptr %row1
  %sum = add i64 %from, %offset
  %row2 = getelementptr i64, ptr %row, i64 2
  %to_at = load ptr, ptr %row2
  store i64 %sum, ptr %to_at
  %next = add i64 %i, 1
  br label %head
done:
  ret void
}

define internal void @copy(ptr %rows, i64 %count) {
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %body, label %done
body:
  %word = mul i64 %i, 5
  %row = getelementptr i64, ptr %rows, i64 %word
  %from_at = load ptr, ptr %row
  %from = load ptr, ptr %from_at
  %row1 = getelementptr i64, ptr %row, i64 1
  %from_offset = load i64, ptr %row1
  %source = getelementptr i8, ptr %from, i64 %from_offset
  %row2 = getelementptr i64, ptr %row, i64 2
  %to_at = load ptr, ptr %row2
  %to = load ptr, ptr %to_at
  %row3 = getelementptr i64, ptr %row, i64 3
  %to_offset = load i64, ptr %row3
  %target = getelementptr i8, ptr %to, i64 %to_offset
  %row4 = getelementptr i64, ptr %row, i64 4
  %bytes = load i64, ptr %row4
  call void @llvm.memmove.p0.p0.i64(ptr %target, ptr %source, i64 %bytes, i1 false)
  %next = add i64 %i, 1
  br label %head
done:
  ret void
}

; What a loop calls for each iteration. Returns 0 when all is done, 1 when a step has failed, or the run
; should end.
define i64 @${symbol}(ptr %chain, ptr %nothing) {
entry:
  %count = load i64, ptr %chain
  %c1 = getelementptr i64, ptr %chain, i64 1
  %links = load ptr, ptr %c1
  %c2 = getelementptr i64, ptr %chain, i64 2
  %runner = load ptr, ptr %c2
  %c3 = getelementptr i64, ptr %chain, i64 3
  %loops = load ptr, ptr %c3
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %after ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %body, label %done
body:
  %word = mul i64 %i, 3
  %link = getelementptr i64, ptr %links, i64 %word
  %kind = load i64, ptr %link
  %link1 = getelementptr i64, ptr %link, i64 1
  %table = load ptr, ptr %link1
  %link2 = getelementptr i64, ptr %link, i64 2
  %rows = load i64, ptr %link2
  switch i64 %kind, label %loop [
    i64 0, label %addresses
    i64 1, label %copies
    i64 2, label %stretch
  ]
addresses:
  call void @point(ptr %table, i64 %rows)
  br label %after
copies:
  call void @copy(ptr %table, i64 %rows)
  br label %after
stretch:
  %bad = call i64 %runner(ptr %table, ptr %nothing)
  %good = icmp eq i64 %bad, 0
  br i1 %good, label %after, label %failed
loop:
  %made = call i64 %loops(ptr %table, ptr %nothing, i64 1)
  %whole = icmp sge i64 %made, 0
  br i1 %whole, label %after, label %failed
after:
  %next = add i64 %i, 1
  br label %head
done:
  ret i64 0
failed:
  ret i64 1
}
