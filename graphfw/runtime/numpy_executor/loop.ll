; A loop whose iterations are all native. `loops.py` lays out what is
; read here. Offsets, in i64 words:
;
;   loop   0 what computes an iteration: the runner, or a chain  1 an empty tuple  2 what of: a stretch, or
;          a chain's table  3 bases of the body
;          4 number of the next iteration  5 what is added to it  6 iterations that are left
;          7 the number, as the body reads it  8 how many moves  9 moves
;         10 how many carries  11 carries  12 stretch of the condition, or null  13 its bases
;         14 for each carry the condition's base  15 where the condition says yes or no
;         16 number of the first iteration  17 iterations that may be made  18 addresses of the arrays
;         19 how many ways  20 ways  21 where the iterations of all loops of a call are counted
;         22 the run of an iteration, which asks whether to end: see `poll.ll`
;         23 the runner, for the condition
;   count  0 iterations until the clock is looked at  1 how many these were  2 when it was, in ticks
;          3 when to ask next: see `runner.ll`
;   move   0 base  1 address in iteration 0  2 bytes an iteration
;   carry  0 base that is read  1 base that is written  2 where it is now  3 where it goes next
;          4 where it goes after that
;   way    0 the number of an array  1 what is added to its address  2 where the sum goes

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

define internal void @move(ptr %bases, ptr %moves, i64 %count, i64 %iteration) {
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
  %offset = mul i64 %bytes, %iteration
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

; Look up where the arrays of a call lie; returns the number of one that can't be taken, or -1.
define internal i64 @look(ptr %addresses, ptr %arrays, i64 %count) {
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %good ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %body, label %done
body:
  %item = getelementptr ptr, ptr %arrays, i64 %i
  %array = load ptr, ptr %item
  %address = call i64 @elements(ptr %array)
  %refused = icmp eq i64 %address, -1
  br i1 %refused, label %bad, label %good
good:
  call void @place(ptr %addresses, i64 %i, i64 %address)
  %next = add i64 %i, 1
  br label %head
bad:
  ret i64 %i
done:
  ret i64 -1
}

; Write the addresses of the arrays wherever they are needed.
define internal void @spread(ptr %addresses, ptr %ways, i64 %count) {
entry:
  br label %head
head:
  %i = phi i64 [ 0, %entry ], [ %next, %body ]
  %more = icmp ult i64 %i, %count
  br i1 %more, label %body, label %done
body:
  %word = mul i64 %i, 3
  %way = getelementptr i64, ptr %ways, i64 %word
  %array = load i64, ptr %way
  %address_at = getelementptr i64, ptr %addresses, i64 %array
  %address = load i64, ptr %address_at
  %offset_at = getelementptr i64, ptr %way, i64 1
  %offset = load i64, ptr %offset_at
  %sum = add i64 %address, %offset
  %target_at = getelementptr i64, ptr %way, i64 2
  %target = load ptr, ptr %target_at
  store i64 %sum, ptr %target
  %next = add i64 %i, 1
  br label %head
done:
  ret void
}

; Ask whether the loop should end, and count down to the next time: so many iterations as take a fraction
; of the time between two questions.
define internal i1 @ends(ptr %count, ptr %run) {
  %many_at = getelementptr i64, ptr %count, i64 1
  %many = load i64, ptr %many_at
  %since_at = getelementptr i64, ptr %count, i64 2
  %since = load i64, ptr %since_at
  %time = call i64 @ticks()
  store i64 %time, ptr %since_at
  %passed = sub i64 %time, %since
  %short = icmp ult i64 %passed, ${short}
  %long = icmp ugt i64 %passed, ${long}
  %twice = shl i64 %many, 1
  %half = lshr i64 %many, 1
  %more = call i64 @llvm.umin.i64(i64 %twice, i64 ${most})
  %fewer = call i64 @llvm.umax.i64(i64 %half, i64 1)
  %kept = select i1 %long, i64 %fewer, i64 %many
  %next = select i1 %short, i64 %more, i64 %kept
  store i64 %next, ptr %many_at
  store i64 %next, ptr %count
  %r14 = getelementptr i64, ptr %run, i64 14
  %poll = load ptr, ptr %r14
  %answer = call i32 %poll(ptr %run, i64 0)
  %ends = icmp ne i32 %answer, 0
  ret i1 %ends
}

declare i64 @llvm.umin.i64(i64, i64)
declare i64 @llvm.umax.i64(i64, i64)

; Make all iterations of a loop with a tuple of arrays. With no arrays, their addresses have been written
; already. Iterations of loops inside are counted with those of the loop around them.
;
; Returns how many iterations there were, -2 when a step has failed or the run should end, -3 - n when the
; array n can't be taken; then nothing is done.
define internal i64 @iterations(ptr %loop, ptr %tuple) {
entry:
  %run = load ptr, ptr %loop
  %l1 = getelementptr i64, ptr %loop, i64 1
  %nothing = load ptr, ptr %l1
  %l2 = getelementptr i64, ptr %loop, i64 2
  %stretch = load ptr, ptr %l2
  %l3 = getelementptr i64, ptr %loop, i64 3
  %bases = load ptr, ptr %l3
  %iteration_at = getelementptr i64, ptr %loop, i64 4
  %l5 = getelementptr i64, ptr %loop, i64 5
  %step = load i64, ptr %l5
  %left_at = getelementptr i64, ptr %loop, i64 6
  %number_at = getelementptr i64, ptr %loop, i64 7
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
  %answer_at = getelementptr i64, ptr %loop, i64 15
  %l16 = getelementptr i64, ptr %loop, i64 16
  %first = load i64, ptr %l16
  %l17 = getelementptr i64, ptr %loop, i64 17
  %all = load i64, ptr %l17
  %l18 = getelementptr i64, ptr %loop, i64 18
  %addresses = load ptr, ptr %l18
  %l21 = getelementptr i64, ptr %loop, i64 21
  %until_at = load ptr, ptr %l21
  %l22 = getelementptr i64, ptr %loop, i64 22
  %asking = load ptr, ptr %l22
  %l23 = getelementptr i64, ptr %loop, i64 23
  %runner = load ptr, ptr %l23
  %counted = icmp eq ptr %condition, null
  %length_at = getelementptr i8, ptr %tuple, i64 16
  %length = load i64, ptr %length_at
  %items = getelementptr i8, ptr %tuple, i64 ${items_offset}
  %refused = call i64 @look(ptr %addresses, ptr %items, i64 %length)
  %taken = icmp slt i64 %refused, 0
  br i1 %taken, label %spread, label %unbound
unbound:
  %unfit = sub i64 -3, %refused
  ret i64 %unfit
spread:
  %l19 = getelementptr i64, ptr %loop, i64 19
  %way_count = load i64, ptr %l19
  %l20 = getelementptr i64, ptr %loop, i64 20
  %ways = load ptr, ptr %l20
  call void @spread(ptr %addresses, ptr %ways, i64 %way_count)
  store i64 %first, ptr %iteration_at
  store i64 %all, ptr %left_at
  %asking_12 = getelementptr i64, ptr %asking, i64 12
  store i64 0, ptr %asking_12
  br label %head
head:
  %left = load i64, ptr %left_at
  %over = icmp eq i64 %left, 0
  br i1 %over, label %done, label %weigh
weigh:
  %until = load i64, ptr %until_at
  %fewer_until = sub i64 %until, 1
  store i64 %fewer_until, ptr %until_at
  %enough = icmp slt i64 %fewer_until, 1
  br i1 %enough, label %poll, label %decide
poll:
  %ends = call i1 @ends(ptr %until_at, ptr %asking)
  br i1 %ends, label %failed, label %decide
decide:
  br i1 %counted, label %begin, label %ask
ask:
  call void @ask(ptr %asked_bases, ptr %asked, ptr %carries, i64 %carry_count)
  %unasked = call i64 %runner(ptr %condition, ptr %nothing)
  %known = icmp eq i64 %unasked, 0
  br i1 %known, label %answer, label %failed
answer:
  %yes = load i8, ptr %answer_at
  %no = icmp eq i8 %yes, 0
  br i1 %no, label %done, label %begin
begin:
  %iteration = load i64, ptr %iteration_at
  store i64 %iteration, ptr %number_at
  call void @move(ptr %bases, ptr %moves, i64 %move_count, i64 %iteration)
  call void @carry(ptr %bases, ptr %carries, i64 %carry_count, i1 false)
  br label %compute
compute:
  %state = call i64 %run(ptr %stretch, ptr %nothing)
  %made = icmp eq i64 %state, 0
  br i1 %made, label %turn, label %failed
turn:
  call void @carry(ptr %bases, ptr %carries, i64 %carry_count, i1 true)
  %now = load i64, ptr %iteration_at
  %further = add i64 %now, %step
  store i64 %further, ptr %iteration_at
  %before = load i64, ptr %left_at
  %fewer = sub i64 %before, 1
  store i64 %fewer, ptr %left_at
  br label %head
done:
  %rest = load i64, ptr %left_at
  %total = sub i64 %all, %rest
  ret i64 %total
failed:
  ret i64 -2
}

; What Python calls, which gives up Python's lock meanwhile, and chains, `inside` of another loop.
define i64 @${symbol}(ptr %loop, ptr %tuple, i64 %inside) {
entry:
  %alone = icmp eq i64 %inside, 0
  br i1 %alone, label %whole, label %nested
nested:
  %some = call i64 @iterations(ptr %loop, ptr %tuple)
  ret i64 %some
whole:
  %l21 = getelementptr i64, ptr %loop, i64 21
  %count = load ptr, ptr %l21
  store i64 1, ptr %count
  %many_at = getelementptr i64, ptr %count, i64 1
  store i64 1, ptr %many_at
  %since_at = getelementptr i64, ptr %count, i64 2
  %time = call i64 @ticks()
  store i64 %time, ptr %since_at
  %due_at = getelementptr i64, ptr %count, i64 3
  store i64 0, ptr %due_at
  %l22 = getelementptr i64, ptr %loop, i64 22
  %run = load ptr, ptr %l22
  %r15 = getelementptr i64, ptr %run, i64 15
  %watch = load ptr, ptr %r15
  %w8 = getelementptr i64, ptr %watch, i64 8
  %save = load ptr, ptr %w8
  %w9 = getelementptr i64, ptr %watch, i64 9
  %restore = load ptr, ptr %w9
  %state = call ptr %save()
  %made = call i64 @iterations(ptr %loop, ptr %tuple)
  call void %restore(ptr %state)
  ret i64 %made
}
