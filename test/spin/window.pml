/* window.pml - notifications of windows (include/weir/device/window.h), for Spin: a rank with a ring for each source
 * device, the ranks that send to it, and its waits and polls by source and tag. In all orders in which their steps may
 * come:
 *
 *   no word of a ring is overwritten before the rank has taken it;
 *   no notification is lost or comes twice, and of those of one source that match, the oldest is taken first;
 *   a wait that ends with WEIR_ERR_LIMIT could never go on, and so could a poll, unless something else is taken first;
 *   a wait comes to its deadline only if no match is sent, and then no sender waits for room that there is;
 *   half a ring of notifications that are not taken always fits, so ranks that send before they wait do not block each
 *   other, also if a notification stays for good; if they send more, both wait for room.
 *
 * Two programs. Without PEERS, rank 0 of device 0 and rank 2 of device 1 send SENDS notifications each and rank 1 of
 * device 0 sends one, with any tags, to a rank that makes REQUESTS waits and polls of any source, tag and count, and
 * then takes all that is left. With PEERS, two ranks of two devices send each other up to PEERS notifications in each of
 * ROUNDS rounds, and wait. With STAYS, the first notification of each has a tag that nobody waits for.
 *
 * Memory is strong: test/litmus/window_test.cc has its orders. A wait blocks until there is a word to look at; `timeout`
 * is the deadline, because no step of any rank is left. Positions do not wrap around.
 *
 * The environment sets RING (words of a ring: twice the notifications of the window), CREDIT (a target stores how far it
 * has taken once so many words are taken that the sender does not know of; RING / 2 in weir), and WRONG, a number of the list below: a
 * mistake that Spin must find. */

#define MAX_RING 8
#define MAX_SENDS 16 /* of one rank */
#define RINGS 2
#define SOURCES 3
#define ANY 3 /* source */
#define ANY_TAG 2

/* Mistakes; CMakeLists.txt reads this list. */
#define WRONG_NO_ROOM 1           /* senders do not wait for room */
#define WRONG_ROOM_FOR_ONE_MORE 2 /* a ring takes one word more than it has */
#define WRONG_TICKET_TORN 3       /* a ticket is taken by a load and a store */
#define WRONG_LAP_CONSTANT 4      /* words of all laps look the same */
#define WRONG_CREDIT_FIRST 5      /* room is returned before the word is read */
#define WRONG_CREDIT_NEVER_EXACT 6
#define WRONG_CREDIT_OF_MATCHING 7 /* exact credits go only to the devices that the wait is for */
#define WRONG_CREDIT_LATE 8        /* credits each time that the whole ring is taken */
#define WRONG_POLL_KEEPS_CREDIT 9  /* a poll that takes nothing stores no exact credits */
#define WRONG_POLL_TAKES_SOME 10
#define WRONG_HEAD_JUMPS 11        /* a match behind the head moves the head past others */
#define WRONG_TOMBSTONE_LAPLESS 12 /* a taken word loses its lap */
#define WRONG_NEWEST_FIRST 13
#define WRONG_HOLE_PASSED 14 /* a wait looks behind a word that is not there yet, and never comes back */
#define WRONG_LIMIT_OF_ONE 15 /* one full ring without a match is enough for WEIR_ERR_LIMIT */
#define WRONG_LIMIT_NEVER 16
#define WRONG_LIMIT_IGNORES_LAST 17 /* a ring counts as full with one word free */
#define WRONG_CREDIT_EXACT_ONCE 18  /* a wait stores exact credits once, and not again after it has taken more */
#define WRONG_HOLES_STAY 19         /* words behind the head that are taken keep their room */
#define WRONG_HOLES_TURNED 20       /* words that move come into the other order */

byte wrong;
byte ring;
byte credit;
byte sends;
byte requests;
byte peers;
byte rounds;
bool stays;

/* ---- memory ------------------------------------------------------------------------------------------------ */

/* A word: its lap, the source's number of the notification, tag, source. */
#define LAP(position) (wrong == WRONG_LAP_CONSTANT -> 1 : 1 - ((position) / ring) % 2)
#define WORD(position, number, tag, source) (LAP(position) * 128 + (number) * 8 + (tag) * 4 + (source))
#define TAKEN 3 /* source of a word that a wait took behind the head */
#define SOURCE(word) ((word) % 4)
#define TAG(word) (((word) / 4) % 2)
#define NUMBER(word) (((word) / 8) % 16)

byte words[RINGS * MAX_RING];
byte sent[RINGS];  /* tickets: the sender's memory */
byte taken[RINGS]; /* credits: the sender's memory */
byte head[RINGS];  /* the target's memory */

#define AT(r, position) words[(r) * MAX_RING + (position) % ring]
#define IS_THERE(r, position) (AT(r, position) / 128 == LAP(position))

/* ---- what is asserted about --------------------------------------------------------------------------------- */

#define NOT_SENT 0
#define SENT 1 /* plus the tag */
#define WAS_TAKEN 3

byte notifications[SOURCES * MAX_SENDS];
byte stored[RINGS];
byte all;   /* notifications that will be sent */
byte ended; /* of them, taken */
byte amounts[RINGS * MAX_SENDS];
bool over; /* a wait ended with an error */

#define NOTIFICATION(source, number) notifications[(source) * MAX_SENDS + (number)]
#define WAITS_FOR_ROOM(r) (sent[r] > stored[r])
#define MATCHES(s, t) ((source == ANY || source == (s)) && (tag == ANY_TAG || tag == (t)))
#define MAY_MATCH(r) (r >= low && r <= high && (source == ANY || source / 2 == r))

/* ---- senders ------------------------------------------------------------------------------------------------ */

#define FITS(r) (wrong == WRONG_NO_ROOM || position - taken[r] < ring + (wrong == WRONG_ROOM_FOR_ONE_MORE))

inline take_ticket(r)
{
    if
    :: atomic { wrong != WRONG_TICKET_TORN -> position = sent[r]; sent[r]++ }
    :: wrong == WRONG_TICKET_TORN -> position = sent[r]; sent[r] = position + 1
    fi
}

inline store(r, from, what)
{
    assert(position < head[r] + ring);
    AT(r, position) = WORD(position, number, what, from);
    NOTIFICATION(from, number) = SENT + (what);
    stored[r]++;
    number++;
    position = 0
}

proctype sender(byte self)
{
    byte number, position, t;
    do
    :: number < amounts[self] && !over ->
        take_ticket(self / 2);
end_room:
        if
        :: atomic { FITS(self / 2) -> select(t : 0 .. (self + number > 0)); store(self / 2, self, t); t = 0 }
        :: over -> break
        fi
    :: else -> break
    od
}

/* ---- waits and polls ------------------------------------------------------------------------------------------ */

#define IS_NEW(r) (MAY_MATCH(r) && cursor[r] < head[r] + ring && IS_THERE(r, cursor[r]))
#define IS_HOLE(r) (MAY_MATCH(r) && cursor[r] + 1 < head[r] + ring && !IS_THERE(r, cursor[r]) && \
                    IS_THERE(r, cursor[r] + 1))
#define IS_FULL(r) (cursor[r] + (wrong == WRONG_LIMIT_IGNORES_LAST) >= head[r] + ring)
#define IS_STUCK                                                                            \
    (wrong != WRONG_LIMIT_NEVER &&                                                          \
     (wrong == WRONG_LIMIT_OF_ONE -> MAY_MATCH(0) && IS_FULL(0) || MAY_MATCH(1) && IS_FULL(1) \
                                   : (!MAY_MATCH(0) || IS_FULL(0)) && (!MAY_MATCH(1) || IS_FULL(1))))

/* The word is the oldest that matches of its source, and is taken once. */
inline check_taken(word)
{
    assert(SOURCE(word) < SOURCES && MATCHES(SOURCE(word), TAG(word)));
    assert(NOTIFICATION(SOURCE(word), NUMBER(word)) == SENT + TAG(word));
    NOTIFICATION(SOURCE(word), NUMBER(word)) = WAS_TAKEN;
    for (i : 0 .. MAX_SENDS - 1) {
        assert(i >= NUMBER(word) || NOTIFICATION(SOURCE(word), i) == WAS_TAKEN ||
               !MATCHES(SOURCE(word), NOTIFICATION(SOURCE(word), i) - SENT))
    }
    i = 0;
    ended++
}

inline take(r)
{
    check_taken(AT(r, at));
    need--;
    if
    :: at == head[r] || wrong == WRONG_HEAD_JUMPS ->
        head[r] = at + 1;
        do
        :: IS_THERE(r, head[r]) && SOURCE(AT(r, head[r])) == TAKEN -> head[r]++
        :: else -> break
        od
    :: else ->
        AT(r, at) = (wrong == WRONG_TOMBSTONE_LAPLESS -> 0 : LAP(at) * 128) + TAKEN
    fi
}

/* The number of taken words behind the head. */
inline count_holes(r)
{
    holes = 0;
    at = head[r];
    do
    :: at < head[r] + ring && IS_THERE(r, at) -> holes = holes + (SOURCE(AT(r, at)) == TAKEN); at++
    :: else -> break
    od
}

/* Moves the words that are not taken to the end of what is there, and the head to the first of them. `to` is the place
 * of the next one that moves. */
inline close_holes(r)
{
    count_holes(r);
    if
    :: holes > 0 && wrong != WRONG_HOLES_STAY ->
        to = at;
        do
        :: at > head[r] ->
            at--;
            if
            :: SOURCE(AT(r, at)) != TAKEN -> to--; AT(r, to) = LAP(to) * 128 + AT(r, at) % 128
            :: else
            fi
        :: else -> break
        od;
        head[r] = to;
        if
        :: wrong == WRONG_HOLES_TURNED && IS_THERE(r, to) && IS_THERE(r, to + 1) && to + 1 < head[r] + ring ->
            at = AT(r, to) % 128;
            AT(r, to) = LAP(to) * 128 + AT(r, to + 1) % 128;
            AT(r, to + 1) = LAP(to + 1) * 128 + at
        :: else
        fi;
        cursor[r] = to;
        to = 0
    :: else
    fi;
    at = 0
}

/* Looks at the next word of a ring, takes it if it matches, and returns credits. */
inline look(r)
{
    at = cursor[r];
    do
    :: wrong == WRONG_NEWEST_FIRST && at + 1 < head[r] + ring && IS_THERE(r, at + 1) -> at++
    :: else -> break
    od;
    if
    :: SOURCE(AT(r, at)) != TAKEN && MATCHES(SOURCE(AT(r, at)), TAG(AT(r, at))) -> take(r)
    :: else
    fi;
    cursor[r]++;
    if
    :: cursor[r] < head[r] -> cursor[r] = head[r]
    :: else
    fi;
    count_holes(r);
    if
    :: head[r] - taken[r] + (wrong == WRONG_HOLES_STAY -> 0 : holes) >= credit -> close_holes(r); taken[r] = head[r]
    :: else
    fi;
    slow = slow && wrong == WRONG_CREDIT_EXACT_ONCE;
    holes = 0;
    at = 0
}

inline store_exact_credits()
{
    for (i : low .. high) {
        if
        :: wrong == WRONG_CREDIT_NEVER_EXACT
        :: wrong == WRONG_CREDIT_OF_MATCHING && !MAY_MATCH(i)
        :: else -> close_holes(i); taken[i] = head[i]
        fi
    }
    holes = 0;
    i = 0
}

/* All rings that could bring a match have no room and hold fewer matches than the request still needs. */
inline check_limit()
{
    d_step {
        at = 0;
        for (i : low .. high) {
            for (k : 0 .. ring - 1) {
                assert(!MAY_MATCH(i) || IS_THERE(i, head[i] + k));
                at = at + (MAY_MATCH(i) && SOURCE(AT(i, head[i] + k)) != TAKEN &&
                           MATCHES(SOURCE(AT(i, head[i] + k)), TAG(AT(i, head[i] + k))))
            }
        }
        assert(at < need);
        at = 0;
        i = 0;
        k = 0
    }
}

/* Nothing that matches was sent, no sender waits for room that there is, and not all rings that could bring a match are
 * full. */
inline check_deadline()
{
    d_step {
        for (i : low .. high) {
            assert(!WAITS_FOR_ROOM(i) || head[i] == taken[i]);
            for (k : 0 .. ring - 1) {
                assert(!WAITS_FOR_ROOM(i) || SOURCE(AT(i, head[i] + k)) != TAKEN)
            }
            at = at + (MAY_MATCH(i) && cursor[i] < head[i] + ring)
        }
        assert(at > 0);
        at = 0;
        for (i : 0 .. SOURCES - 1) {
            for (k : 0 .. MAX_SENDS - 1) {
                at = at + (NOTIFICATION(i, k) != NOT_SENT && NOTIFICATION(i, k) != WAS_TAKEN &&
                           MATCHES(i, NOTIFICATION(i, k) - SENT))
            }
        }
        assert(at < need);
        at = 0;
        i = 0;
        k = 0
    }
}

inline begin()
{
    cursor[0] = head[0];
    cursor[1] = head[1];
    slow = false
}

/* Until `need` is 0, or `over`. */
inline wait()
{
    begin();
    do
    :: need == 0 -> break
    :: d_step { need > 0 && IS_NEW(0) -> look(0) }
    :: d_step { need > 0 && IS_NEW(1) -> look(1) }
    :: d_step { need > 0 && !slow && !IS_NEW(0) && !IS_NEW(1) -> store_exact_credits(); slow = true }
    :: need > 0 && slow && IS_STUCK -> check_limit(); over = true; break
    :: need > 0 && slow && !IS_STUCK && timeout -> check_deadline(); over = true; break
    :: wrong == WRONG_HOLE_PASSED && need > 0 && IS_HOLE(0) -> cursor[0]++
    :: wrong == WRONG_CREDIT_FIRST && need > 0 && IS_NEW(0) && taken[0] <= head[0] -> taken[0] = head[0] + 1
    od
}

inline scan(r)
{
    do
    :: IS_NEW(r) ->
        found = found + (SOURCE(AT(r, cursor[r])) != TAKEN && MATCHES(SOURCE(AT(r, cursor[r])), TAG(AT(r, cursor[r]))));
        cursor[r]++
    :: else -> break
    od
}

/* Polls until it takes `need`, or ends with WEIR_ERR_LIMIT or by the deadline of the program. */
inline poll_until()
{
    do
    :: d_step {
        begin();
        found = 0;
        scan(0);
        scan(1);
        if
        :: found < need && wrong != WRONG_POLL_KEEPS_CREDIT -> store_exact_credits()
        :: else
        fi
    };
        if
        :: found >= need || found > 0 && wrong == WRONG_POLL_TAKES_SOME ->
            found = ended + need;
            if
            :: wrong == WRONG_POLL_TAKES_SOME -> need = 1
            :: else
            fi;
            wait();
            assert(!over && ended == found);
            break
        :: found < need && IS_STUCK -> check_limit(); break
        :: found < need && !IS_STUCK && (IS_NEW(0) || IS_NEW(1))
        :: found < need && !IS_STUCK && !IS_NEW(0) && !IS_NEW(1) && timeout -> check_deadline(); over = true; break
        fi
    od;
    found = 0
}

proctype receiver()
{
    byte request, source, tag, need, at, to, holes, i, k, found;
    byte cursor[RINGS];
    byte low = 0, high = RINGS - 1;
    bool slow;
    do
    :: request < requests && !over ->
        atomic {
            select(source : 0 .. ANY);
            select(tag : 0 .. ANY_TAG);
            select(need : 1 .. 2);
            request++
        };
        if
        :: wait()
        :: poll_until()
        fi
    :: else -> break
    od;
    source = ANY;
    tag = ANY_TAG;
    do
    :: !over && ended < all -> need = 1; wait(); assert(!over) /* or a notification is lost */
    :: else -> break
    od
}

/* ---- peers ---------------------------------------------------------------------------------------------------- */

/* A rank sends before it waits. Its source number is 2 * self: that of a rank of device `self`. */
proctype peer(byte self)
{
    byte round, count, number, position, need, at, to, holes, i, k;
    byte cursor[RINGS];
    byte low = 1 - self, high = 1 - self; /* its ring: of the words of the other device */
    byte source = ANY, tag = (stays -> 0 : ANY_TAG);
    bool slow;
    do
    :: round < rounds && !over ->
        count = amounts[self * MAX_SENDS + round];
        do
        :: count > 0 && !over ->
            take_ticket(self);
            if
            :: d_step { FITS(self) -> store(self, 2 * self, (stays && number == 0)) }
            :: timeout ->
                assert(peers > ring / 2 && WAITS_FOR_ROOM(0) && WAITS_FOR_ROOM(1));
                over = true
            :: over
            fi;
            count--
        :: else -> break
        od;
        if
        :: !over ->
            need = amounts[low * MAX_SENDS + round] - (stays && round == 0);
            wait();
            assert(!over);
            round++
        :: else -> break
        fi
    :: else -> break
    od
}

init
{
    byte i, k, amount;
    c_code {
        now.wrong = getenv("WRONG") != 0 ? atoi(getenv("WRONG")) : 0;
        now.ring = getenv("RING") != 0 ? atoi(getenv("RING")) : 2;
        now.credit = getenv("CREDIT") != 0 ? atoi(getenv("CREDIT")) : now.ring / 2;
        now.sends = getenv("SENDS") != 0 ? atoi(getenv("SENDS")) : 2;
        now.requests = getenv("REQUESTS") != 0 ? atoi(getenv("REQUESTS")) : 1;
        now.peers = getenv("PEERS") != 0 ? atoi(getenv("PEERS")) : 0;
        now.rounds = getenv("ROUNDS") != 0 ? atoi(getenv("ROUNDS")) : 3;
        now.stays = getenv("STAYS") != 0;
    };
    if
    :: wrong == WRONG_CREDIT_LATE -> credit = ring
    :: else
    fi;
    if
    :: peers == 0 ->
        amounts[0] = sends;
        amounts[1] = 1;
        amounts[2] = sends;
        all = 2 * sends + 1;
        atomic { run sender(0); run sender(1); run sender(2); run receiver() }
    :: else ->
        for (i : 0 .. RINGS - 1) {
            for (k : 0 .. rounds - 1) {
                select(amount : 1 .. peers);
                amounts[i * MAX_SENDS + k] = amount
            }
        }
        atomic { run peer(0); run peer(1) }
    fi
}
