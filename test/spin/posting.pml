/* posting.pml - how kernels post to an RDMA NIC (include/weir/device/rdma.h), for Spin: posters that share a queue of
 * four blocks, and the NIC, which may fail at any entry. In all orders in which their steps may come:
 *
 *   the NIC finds each entry whole, when it fetches it and when it is done with it; entries are in the order of their
 *   positions, a poster's in its own order, none is lost or comes twice; signals are numbered in their order;
 *   no block is written before what it held is done, no completion before there is room for it;
 *   the doorbell never goes back, and the record is never behind it; when a ring returns, the NIC knows of its posts;
 *   a poster that waits learns that all is done, or, for entries from the failed one on, of the error;
 *   all posters end.
 *
 * Memory is weak in one way: relaxed stores, one of an entry's two words and the record are held back, and become
 * visible in any order, at the latest with their thread's next release. Releases are visible at once. Loads are not
 * done early: what acquires are for is shown by test/litmus. Steps that others cannot tell apart are one. A wait blocks
 * until something that it looks at changes, and has no deadline. Positions do not wrap around.
 *
 * The environment says how many posters there are (POSTERS), how many posts each has (ROUNDS), how many posters have
 * their last one refused (REFUSERS), and which mistake is made (WRONG, a number of the list below). Spin must find it. */

#define MAX_POSTERS 3
#define BLOCKS 4
#define EVERY 2 /* the last of so many blocks has a completion */

/* Mistakes that the model can make; CMakeLists.txt reads this list. */
#define WRONG_PUBLISHED_FIRST 1   /* an entry is published before it is written */
#define WRONG_PUBLISHED_RELAXED 2 /* an entry is published by a store that is no release */
#define WRONG_NO_TURN 3           /* an entry is published before those before it */
#define WRONG_NO_ROOM 4           /* nobody waits for room */
#define WRONG_ROOM_FOR_5 5        /* one block more than there are */
#define WRONG_NO_HELP 6           /* a poster that waits for room does not ring for published entries */
#define WRONG_FEW_COMPLETIONS 7   /* entries have completions only where asked for */
#define WRONG_DOORBELL_FIRST 8    /* the doorbell is rung before the record is stored */
#define WRONG_DOORBELL_RELAXED 9  /* the doorbell is no release */
#define WRONG_RUNG_FIRST 10       /* posters learn that the NIC knows before it does */
#define WRONG_RING_TOGETHER 11    /* two threads ring at a time */
#define WRONG_POLL_TOGETHER 12    /* two threads read completions at a time */
#define WRONG_FAILED_FIRST 13     /* an error is stored before the earlier entries count as done */
#define WRONG_FAILED_READ_LAST 14 /* a poster that waits checks the error after it checks what is done */
#define WRONG_FAILED_UNREAD 15    /* a poster that waits does not check the error */
#define WRONG_RETURNED_LATE 16    /* posters learn of room before the completion queue has it */
#define WRONG_NUMBERED_FIRST 17   /* a signal has its number before its turn */
#define WRONG_REFUSED_FIRST 18    /* a refusal does not wait for its turn */
#define WRONG_REFUSED_UNREAD 19   /* a poster that waits for its turn does not check whether that was refused */

byte wrong;
byte posters;
byte rounds;
byte refusers;

/* ---- memory: words that all see, and what each poster holds back of its stores, plus 1 ------------------------ */

#define VALUE(position) ((position) % BLOCKS) /* of an entry: what it does */
#define SIGNALS 4
#define RUNG 5
#define TAKEN 6
#define RETURNED 7 /* the completion queue's record */
#define RECORD 8
#define HELD_WORDS 9
#define CONTROL(position) (9 + (position) % BLOCKS) /* of an entry: its position, whether it makes a completion */
#define READY 13
#define COMPLETED 14
#define FAILED 15
#define RINGING 16
#define POLLING 17
#define DOORBELL 18
#define REFUSED 19 /* the position behind which nothing is posted, plus 1; or 0 */
#define WORDS 20

byte memory[WORDS];
byte held[MAX_POSTERS * HELD_WORDS];
byte reserved; /* changed by fetch-add alone */

#define HELD(word) held[self * HELD_WORDS + (word)]
#define LOAD(word) (HELD(word) -> HELD(word) - 1 : memory[word]) /* of a word that may be held */
#define STORE(word, value) HELD(word) = (value) + 1

#define SEE(word)                 \
    HELD(word) ->                 \
    memory[word] = HELD(word) - 1; \
    HELD(word) = 0

inline see_all()
{
    for (w : 0 .. HELD_WORDS - 1) {
        if
        :: SEE(w)
        :: else
        fi
    }
    w = 0
}

/* Makes the stores of a poster visible to the others. */
proctype others(byte self)
{
end:
    do
    :: d_step { SEE(0) }
    :: d_step { SEE(1) }
    :: d_step { SEE(2) }
    :: d_step { SEE(3) }
    :: d_step { SEE(SIGNALS) }
    :: d_step { SEE(RUNG) }
    :: d_step { SEE(TAKEN) }
    :: d_step { SEE(RETURNED) }
    :: d_step { SEE(RECORD) }
    od
}

/* ---- NIC -------------------------------------------------------------------------------------------------- */

#define NONE 255
#define SIGNAL 128 /* and its number: the value of an entry; that of a put is PUT */
#define PUT(poster, round) (1 + (poster) * 8 + (round))

byte pass[BLOCKS]; /* of each completion: its lap plus 1, the position, whether it failed */
byte done[BLOCKS];
bool error[BLOCKS];
byte completions;
byte finished;          /* entries that it will not look at again */
byte lost = NONE;       /* the first that failed */
byte puts[MAX_POSTERS]; /* that arrived */
byte token;             /* the last signal that arrived */
byte signals;           /* that were posted */
byte ended;             /* posters */

#define NEW(number) (pass[(number) % BLOCKS] == (number) / BLOCKS + 1)

inline complete(failed)
{
    assert(completions - memory[RETURNED] < BLOCKS);
    pass[completions % BLOCKS] = completions / BLOCKS + 1;
    done[completions % BLOCKS] = finished;
    error[completions % BLOCKS] = failed;
    completions++
}

#define IS_WHOLE(position) (memory[CONTROL(position)] / 2 == (position) && memory[VALUE(position)] != 0)
#define IS_NEXT(value) \
    ((value) > SIGNAL -> (value) - SIGNAL == token + 1 : ((value) - 1) % 8 == puts[((value) - 1) / 8])

proctype nic()
{
    byte fetched;
end:
    do
    :: d_step {
        fetched < memory[DOORBELL] && lost == NONE ->
        assert(memory[RECORD] >= memory[DOORBELL]);
        assert(IS_WHOLE(fetched));
        fetched++
    }
    :: d_step {
        finished < fetched && lost == NONE ->
        assert(IS_WHOLE(finished) && IS_NEXT(memory[VALUE(finished)]));
        if
        :: memory[VALUE(finished)] > SIGNAL -> token++
        :: else -> puts[(memory[VALUE(finished)] - 1) / 8]++
        fi;
        if
        :: memory[CONTROL(finished)] % 2 -> complete(false)
        :: else
        fi;
        finished++
    }
    :: d_step { finished < fetched && lost == NONE -> lost = finished; complete(true); finished++ }
    :: d_step { finished < memory[DOORBELL] && lost != NONE -> complete(true); finished++ }
    od
}

/* ---- posters ---------------------------------------------------------------------------------------------- */

/* `rung` is stored, too. */
inline tell()
{
    d_step {
        see_all();
        STORE(RECORD, ready);
        if
        :: wrong == WRONG_RUNG_FIRST -> STORE(RUNG, ready)
        :: wrong == WRONG_DOORBELL_FIRST -> memory[DOORBELL] = ready
        :: else
        fi
    };
    d_step {
        assert(ready > memory[DOORBELL] || wrong == WRONG_DOORBELL_FIRST);
        if
        :: wrong != WRONG_DOORBELL_RELAXED && wrong != WRONG_DOORBELL_FIRST -> see_all()
        :: else
        fi;
        memory[DOORBELL] = ready;
        STORE(RUNG, ready)
    }
}

inline ring()
{
    mine = memory[READY];
    do
    :: LOAD(RUNG) >= mine -> break
    :: atomic {
        memory[RINGING] == 0 || wrong == WRONG_RING_TOGETHER ->
        memory[RINGING] = 1;
    };
        ready = memory[READY];
        if
        :: LOAD(RUNG) < ready -> tell()
        :: else
        fi;
        d_step { see_all(); memory[RINGING] = 0 };
        break
    od;
    assert(memory[DOORBELL] >= mine);
    d_step { mine = 0; ready = 0 }
}

#define MAY_POLL ((memory[POLLING] == 0 || wrong == WRONG_POLL_TOGETHER) && memory[FAILED] == 0 && NEW(LOAD(TAKEN)))

inline poll()
{
    d_step {
        MAY_POLL ->
        memory[POLLING] = 1;
        taken = LOAD(TAKEN);
        do
        :: !failed && NEW(taken) ->
            failed = error[taken % BLOCKS];
            completed = done[taken % BLOCKS] + !failed;
            taken++
        :: else -> break
        od;
        STORE(TAKEN, taken);
        if
        :: wrong != WRONG_RETURNED_LATE -> STORE(RETURNED, taken)
        :: else
        fi
    };
    if
    :: wrong == WRONG_FAILED_FIRST && failed -> memory[FAILED] = 1
    :: else
    fi;
    d_step {
        assert(completed >= memory[COMPLETED]);
        see_all();
        memory[COMPLETED] = completed
    };
    d_step {
        if
        :: wrong == WRONG_RETURNED_LATE -> STORE(RETURNED, taken)
        :: else
        fi;
        taken = 0;
        completed = 0
    };
    if
    :: failed -> d_step { memory[FAILED] = 1; failed = false }
    :: else
    fi;
    d_step { see_all(); memory[POLLING] = 0 }
}

#define IS_REFUSED(position) (memory[REFUSED] != 0 && (position) >= memory[REFUSED] - 1)

/* Until all up to `position` is done, or will never be: `ok` tells. */
inline await_done(position, rings)
{
    do
    :: memory[COMPLETED] > position -> ok = true; break
    :: memory[FAILED] && wrong != WRONG_FAILED_UNREAD -> ok = memory[COMPLETED] > position; break
    :: IS_REFUSED(position) -> ok = false; break
    :: wrong == WRONG_FAILED_READ_LAST && memory[COMPLETED] <= position ->
        if
        :: memory[FAILED] -> ok = false; break
        :: else
        fi
    :: rings && wrong != WRONG_NO_HELP && LOAD(RUNG) < memory[READY] -> ring()
    :: poll()
    od
}

inline write(position, signalled, value)
{
    assert(position < BLOCKS || position - BLOCKS < finished);
    memory[CONTROL(position)] = 2 * (position) +
                                (signalled || (position) % EVERY == EVERY - 1 && wrong != WRONG_FEW_COMPLETIONS);
    STORE(VALUE(position), value)
}

inline write_put()
{
    write(first, round == rounds - 1 && blocks == 1, PUT(self, round))
}

inline write_signal()
{
    if
    :: blocks == 2 ->
        if
        :: wrong != WRONG_NUMBERED_FIRST -> number = LOAD(SIGNALS) + 1; STORE(SIGNALS, number)
        :: else
        fi;
        write(first + 1, round == rounds - 1, SIGNAL + number);
        number = 0;
        signals++
    :: else
    fi
}

#define IS_TURN (memory[READY] == first || wrong == WRONG_NO_TURN)
#define NEVER_TURN (IS_REFUSED(first) && wrong != WRONG_REFUSED_UNREAD)

inline publish()
{
    if
    :: d_step {
        IS_TURN ->
        if
        :: wrong != WRONG_PUBLISHED_FIRST -> write_signal()
        :: else
        fi;
        if
        :: wrong != WRONG_PUBLISHED_RELAXED -> see_all()
        :: else
        fi;
        memory[READY] = first + blocks;
        ok = true
    }
    :: NEVER_TURN -> ok = false
    fi
}

inline refuse()
{
    if
    :: d_step {
        IS_TURN || wrong == WRONG_REFUSED_FIRST ->
        assert(memory[REFUSED] == 0);
        see_all();
        memory[REFUSED] = first + 1;
        ok = true
    }
    :: NEVER_TURN -> ok = false
    fi
}

/* Puts, every second one with a signal; some ring, and the last is waited for. The last put of a refuser is refused. */
proctype poster(byte self)
{
    byte round, first, blocks, number;
    byte mine, ready, taken, completed, w;
    bool failed, ok, refuses;
    do
    :: d_step {
        round < rounds ->
        refuses = round == rounds - 1 && self + refusers >= posters;
        blocks = (refuses -> 1 : 2 - (round + self) % 2);
        first = reserved;
        reserved = reserved + blocks;
        if
        :: blocks == 2 && wrong == WRONG_NUMBERED_FIRST -> number = LOAD(SIGNALS) + 1; STORE(SIGNALS, number)
        :: else
        fi
    };
        if
        :: first + blocks - memory[COMPLETED] > BLOCKS + (wrong == WRONG_ROOM_FOR_5) && wrong != WRONG_NO_ROOM ->
            await_done(first + blocks - BLOCKS - 1, true);
            if
            :: ok
            :: else -> break
            fi
        :: else
        fi;
        if
        :: refuses -> refuse()
        :: !refuses && wrong == WRONG_PUBLISHED_FIRST -> publish(); d_step { write_put(); write_signal() }
        :: !refuses && wrong != WRONG_PUBLISHED_FIRST -> d_step { write_put() }; publish()
        fi;
        if
        :: !ok -> break
        :: ok && !refuses -> ring()
        :: ok && round < rounds - 1
        :: ok && refuses
        fi;
        round++
    :: else ->
        await_done(first + blocks - 1, false);
        assert(ok -> first + blocks - 1 < finished && first + blocks - 1 < lost :
                     first + blocks - 1 >= lost || IS_REFUSED(first + blocks - 1));
        break
    od;
    if
    :: !ok -> ring() /* for what it posted before */
    :: else
    fi;
    ended++;
    assert(ended < posters || lost != NONE || memory[DOORBELL] == memory[READY]);
    assert(ended < posters || lost != NONE || memory[REFUSED] != 0 || finished == reserved && token == signals)
}

init
{
    byte i;
    atomic {
        c_code {
            now.wrong = getenv("WRONG") != 0 ? atoi(getenv("WRONG")) : 0;
            now.posters = getenv("POSTERS") != 0 ? atoi(getenv("POSTERS")) : 2;
            now.rounds = getenv("ROUNDS") != 0 ? atoi(getenv("ROUNDS")) : 2;
            now.refusers = getenv("REFUSERS") != 0 ? atoi(getenv("REFUSERS")) : 0;
        };
        run nic();
        for (i : 0 .. posters - 1) {
            run poster(i);
            run others(i)
        }
    }
}
