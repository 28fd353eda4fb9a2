; A loop whose trips are all native: the runner is called once a trip. `loops.py` lays out what is
; read here. Offsets, in i64 words:
;
;   loop   0 the runner  1 an empty tuple  2 stretch of the body  3 its bases
;          4 number of the next trip  5 what is added to it  6 trips that are left
;          7 where the body finds the number  8 how many moves  9 moves
;         10 how many carries  11 carries  12 stretch of the condition, or null  13 its bases
;         14 for each carry the condition's base  15 where the condition says yes or no
;         16 trips that this call may make
;   move   0 base  1 address in trip 0  2 bytes a trip
;   carry  0 base that is read  1 base that is written  2 where it is now  3 where it goes next
;          4 where it goes after that
;
; Returns 0 when all is done, 1 when this call has made its trips, -1 when a step has failed.

define internal void @place(ptr %bases, i64 %number, i64 %address) alwaysinline {
  %target = getelementptr i64, ptr %bases, i64 %number
  store i64 %address, ptr %target
  ret void
}

define internal void @ask(ptr %bases, ptr %places, ptr %carries, i64 %count) {
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %body, label %done
body:
  %place_at = getelementptr i64, ptr %places, i64 %i
  %place = load i64, ptr %place_at
  %word = mul i64 %i, 5
  %carry = getelementptr i64, ptr %carries, i64 %word
  %now_at = getelementptr i64, ptr %carry, i64 2
  %now = load i64, ptr %now_at
  call void @place(ptr %bases, i64 %place, i64 %now)
  %next = add i64 %i, 1
  br label %head
done:
  ret void
}

define internal void @move(ptr %bases, ptr %moves, i64 %count, i64 %trip) {
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %body, label %done
body:
  %word = mul i64 %i, 3
  %move = getelementptr i64, ptr %moves, i64 %word
  %base = load i64, ptr %move
  %first_at = getelementptr i64, ptr %move, i64 1
  %first = load i64, ptr %first_at
  %bytes_at = getelementptr i64, ptr %move, i64 2
  %bytes = load i64, ptr %bytes_at
  %offset = mul i64 %bytes, %trip
  %address = add i64 %first, %offset
  call void @place(ptr %bases, i64 %base, i64 %address)
  %next = add i64 %i, 1
  br label %head
done:
  ret void
}

; Say where the carries are read and written, or, with `turn`, that they have been.
define internal void @carry(ptr %bases, ptr %carries, i64 %count, i1 %turn) {
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %after ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %body, label %done
body:
  %word = mul i64 %i, 5
  %carry = getelementptr i64, ptr %carries, i64 %word
  %now_at = getelementptr i64, ptr %carry, i64 2
  %new_at = getelementptr i64, ptr %carry, i64 3
  %new = load i64, ptr %new_at
  br i1 %turn, label %turned, label %begun
begun:
  %now = load i64, ptr %now_at
  %in = load i64, ptr %carry
  call void @place(ptr %bases, i64 %in, i64 %now)
  %out_at = getelementptr i64, ptr %carry, i64 1
  %out = load i64, ptr %out_at
  call void @place(ptr %bases, i64 %out, i64 %new)
  br label %after
turned:
  store i64 %new, ptr %now_at
  %other_at = getelementptr i64, ptr %carry, i64 4
  %other = load i64, ptr %other_at
  store i64 %other, ptr %new_at
  store i64 %new, ptr %other_at
  br label %after
after:
  %next = add i64 %i, 1
  br label %head
done:
  ret void
}

define i64 @${symbol}(ptr %loop) {
entry:
  %run = load ptr, ptr %loop
  %l1 = getelementptr i64, ptr %loop, i64 1
  %nothing = load ptr, ptr %l1
  %l2 = getelementptr i64, ptr %loop, i64 2
  %stretch = load ptr, ptr %l2
  %l3 = getelementptr i64, ptr %loop, i64 3
  %bases = load ptr, ptr %l3
  %trip_at = getelementptr i64, ptr %loop, i64 4
  %l5 = getelementptr i64, ptr %loop, i64 5
  %step = load i64, ptr %l5
  %left_at = getelementptr i64, ptr %loop, i64 6
  %l7 = getelementptr i64, ptr %loop, i64 7
  %number_at = load ptr, ptr %l7
  %l8 = getelementptr i64, ptr %loop, i64 8
  %move_count = load i64, ptr %l8
  %l9 = getelementptr i64, ptr %loop, i64 9
  %moves = load ptr, ptr %l9
  %l10 = getelementptr i64, ptr %loop, i64 10
  %carry_count = load i64, ptr %l10
  %l11 = getelementptr i64, ptr %loop, i64 11
  %carries = load ptr, ptr %l11
  %l12 = getelementptr i64, ptr %loop, i64 12
  %condition = load ptr, ptr %l12
  %l13 = getelementptr i64, ptr %loop, i64 13
  %asked_bases = load ptr, ptr %l13
  %l14 = getelementptr i64, ptr %loop, i64 14
  %asked = load ptr, ptr %l14
  %l15 = getelementptr i64, ptr %loop, i64 15
  %answer_at = load ptr, ptr %l15
  %l16 = getelementptr i64, ptr %loop, i64 16
  %limit = load i64, ptr %l16
  %counted = icmp eq ptr %condition, null
  br label %head
head:
  %made = phi i64 [ 0, %entry ], [ %after, %turn ]
  %left = load i64, ptr %left_at
  %over = icmp eq i64 %left, 0
  br i1 %over, label %done, label %look
look:
  %enough = icmp eq i64 %made, %limit
  br i1 %enough, label %pause, label %decide
decide:
  br i1 %counted, label %begin, label %ask
ask:
  call void @ask(ptr %asked_bases, ptr %asked, ptr %carries, i64 %carry_count)
  %unasked = call i64 %run(ptr %condition, ptr %nothing)
  %known = icmp eq i64 %unasked, 0
  br i1 %known, label %answer, label %failed
answer:
  %yes = load i8, ptr %answer_at
  %no = icmp eq i8 %yes, 0
  br i1 %no, label %stop, label %begin
begin:
  %trip = load i64, ptr %trip_at
  store i64 %trip, ptr %number_at
  call void @move(ptr %bases, ptr %moves, i64 %move_count, i64 %trip)
  call void @carry(ptr %bases, ptr %carries, i64 %carry_count, i1 false)
  %bad = call i64 %run(ptr %stretch, ptr %nothing)
  %good = icmp eq i64 %bad, 0
  br i1 %good, label %turn, label %failed
turn:
  call void @carry(ptr %bases, ptr %carries, i64 %carry_count, i1 true)
  %further = add i64 %trip, %step
  store i64 %further, ptr %trip_at
  %fewer = sub i64 %left, 1
  store i64 %fewer, ptr %left_at
  %after = add i64 %made, 1
  br label %head
stop:
  store i64 0, ptr %left_at
  br label %done
done:
  ret i64 0
pause:
  ret i64 1
failed:
  ret i64 -1
}
