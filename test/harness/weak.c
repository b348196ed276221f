/* weak.c - the simulated memory of weak.h.
 *
 * Each thread has a vector clock of the accesses that it knows, its own and others'. A value in a history records when
 * each thread first met it. The newest value met at a time that the thread's clock covers bounds its reads: it may read
 * that value and later ones. A release stores the thread's clock with the value; an acquire merges it. */
#include "test/harness/weak.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "test/harness/arch_weak.h"

#define THREADS WEIRT_WEAK_THREADS
#define DEVICES WEIRT_WEAK_DEVICES
#define SLOTS 16384u  /* of the hash table */
#define WORDS 8192u   /* different words that a run may touch */
#define VALUES 65536u /* different values that a run may store */
#define CHOICES 32u
#define STEP_NS 1000000u
#define STACK_BYTES (256u << 10)

typedef uint32_t clock_vector[THREADS];

typedef struct value {
    uint64_t bits;
    uint64_t step;     /* step at which it was stored */
    uint32_t previous; /* value before it in coherence order; 0: none */
    uint32_t next;
    bool joined;                       /* made from the previous value: nothing may come between them */
    clock_vector met;                  /* each thread's time when it first met the value; 0: not yet */
    clock_vector released[2][DEVICES]; /* clock that an acquire merges, by device and scope (DEV, SYS) of the release */
} value;

typedef struct word {
    uintptr_t address; /* divided by 8 */
    uint32_t newest;
    uint32_t accesses[THREADS][2][3][8]; /* time of each thread's last read and write of a byte, by strength */
} word;

typedef struct access {
    word *word;
    uint32_t shift; /* of its first byte in the word */
    uint32_t bytes;
    bool acquire;
    bool release;
    bool behind_fence; /* releases what the last fence did */
    int strength;      /* WEIRT_WEAK_PLAIN, _DEV, _SYS */
} access;

typedef struct thread {
    ucontext_t context;
    uint32_t index;
    uint32_t device;
    bool done;
    const weirt_weak_block *waits_at; /* NULL unless it waits at a barrier */
    clock_vector clock;
    clock_vector fenced[2]; /* clock at the last release fence, by scope (DEV, SYS) */
    clock_vector loaded[2]; /* what an acquire fence of that scope would merge */
} thread;

typedef struct memory {
    ucontext_t caller; /* of weirt_weak_run */
    weirt_weak_options options;
    weirt_weak_report *report;
    void (*body)(void *arg, uint32_t index);
    void *arg;
    thread threads[THREADS];
    uint64_t random;
    uint64_t window;      /* steps after which an overwritten value is forgotten */
    uint32_t turn_length; /* mean number of accesses before the turn passes on */
    uint32_t table[SLOTS];
    uint32_t word_count;
    uint32_t value_count;
    word words[WORDS];
    value values[VALUES];
} memory;

static memory the_memory;
static memory *const m = &the_memory;
static thread *self; /* whose turn it is; NULL outside of a run */
static _Alignas(64) char stacks[THREADS][STACK_BYTES];

/* splitmix64 */
static uint64_t draw(uint64_t below)
{
    uint64_t z = m->random += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (z ^ z >> 31) % below;
}

/* The threads that may run, without `self` if it leaves. */
static uint32_t list_ready(uint32_t *ready, bool leave)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < m->options.threads; i++) {
        const thread *t = &m->threads[i];
        if (!t->done && (t->waits_at == NULL || m->report->stuck) && !(leave && t == self)) {
            ready[count++] = i;
        }
    }
    return count;
}

/* Passes the turn to any thread that may run; to another one if the caller leaves. Returns in the caller's next turn,
 * or at once if no other thread may run. */
static void pass_turn(bool leave)
{
    uint32_t ready[THREADS];
    uint32_t count = list_ready(ready, leave);
    if (count == 0 && (self->done || self->waits_at != NULL)) {
        /* The remaining threads wait at a barrier for threads that will not come. */
        for (uint32_t i = 0; i < m->options.threads; i++) {
            m->report->stuck = m->report->stuck || !m->threads[i].done;
        }
        count = list_ready(ready, leave);
    }
    thread *const before = self;
    self = count != 0 ? &m->threads[ready[draw(count)]] : self;
    if (self != before) {
        swapcontext(&before->context, &self->context);
    }
}

static void step(void)
{
    m->report->steps++;
    self->clock[self->index]++;
    if (draw(m->turn_length) == 0) {
        pass_turn(false);
    }
}

static void learn(clock_vector to, const clock_vector from)
{
    for (uint32_t i = 0; i < THREADS; i++) {
        to[i] = to[i] > from[i] ? to[i] : from[i];
    }
}

static uint32_t new_value(void)
{
    if (m->value_count == VALUES) {
        fprintf(stderr, "weak.c: a run stores more than %u values\n", VALUES);
        exit(1);
    }
    value *v = &m->values[m->value_count];
    memset(v, 0, sizeof *v);
    v->step = m->report->steps;
    return m->value_count++;
}

static word *find_word(uintptr_t address)
{
    uint32_t slot = (uint32_t)(address * 0x9e3779b97f4a7c15u >> 40) % SLOTS;
    while (m->table[slot] != 0) {
        word *w = &m->words[m->table[slot] - 1];
        if (w->address == address) {
            return w;
        }
        slot = (slot + 1) % SLOTS;
    }
    if (m->word_count == WORDS) {
        fprintf(stderr, "weak.c: a run touches more than %u words\n", WORDS);
        exit(1);
    }
    word *w = &m->words[m->word_count++];
    m->table[slot] = m->word_count;
    memset(w, 0, sizeof *w);
    w->address = address;
    w->newest = new_value();
    memcpy(&m->values[w->newest].bits, (void *)(address * 8), 8);
    return w;
}

/* ---- visible values --------------------------------------------------------------------------------- */

static bool knows(const value *v)
{
    for (uint32_t i = 0; i < m->options.threads; i++) {
        if (v->met[i] != 0 && v->met[i] <= self->clock[i]) {
            return true;
        }
    }
    return false;
}

/* The values that the thread may read: from the newest back to the newest that it knows. Values overwritten long ago
 * are left out. */
static uint32_t list_choices(const word *w, uint32_t *choices)
{
    uint32_t count = 0;
    for (uint32_t i = w->newest; count < CHOICES; i = m->values[i].previous) {
        const value *v = &m->values[i];
        if (v->next != 0 && m->values[v->next].step + m->window < m->report->steps) {
            break;
        }
        choices[count++] = i;
        if (knows(v) || v->previous == 0) {
            break;
        }
    }
    return count;
}

static uint32_t choose_read(const word *w)
{
    uint32_t choices[CHOICES];
    uint32_t count = list_choices(w, choices);
    return draw(2) == 0 ? choices[0] : choices[draw(count)];
}

/* The value after which a store may go, usually the newest. */
static uint32_t choose_previous(const word *w)
{
    uint32_t choices[CHOICES];
    uint32_t count = list_choices(w, choices);
    uint32_t chosen = draw(4) != 0 ? choices[0] : choices[draw(count)];
    uint32_t next = m->values[chosen].next;
    return next != 0 && m->values[next].joined ? w->newest : chosen;
}

static void meet(uint32_t index)
{
    uint32_t *met = &m->values[index].met[self->index];
    *met = *met != 0 ? *met : self->clock[self->index];
}

/* ---- races ------------------------------------------------------------------------------------------ */

static bool includes(int strength, const thread *holder, const thread *other)
{
    return strength == WEIRT_WEAK_SYS || (strength == WEIRT_WEAK_DEV && holder->device == other->device);
}

static void report_race(const access *a, const thread *other, bool writes, bool wrote)
{
    if (m->report->races++ != 0) {
        return;
    }
    snprintf(m->report->race, sizeof m->report->race,
             "step %llu: thread %u %s %u bytes at %p, which thread %u %s, unordered",
             (unsigned long long)m->report->steps, self->index, writes ? "writes" : "reads", a->bytes,
             (void *)(a->word->address * 8 + a->shift), other->index, wrote ? "wrote" : "read");
}

/* Checks for accesses that conflict with this one, and records it. */
static void check_access(const access *a, bool writes)
{
    bool found = false;
    for (uint32_t i = 0; i < m->options.threads; i++) {
        const thread *other = &m->threads[i];
        for (int k = 0; k < 6 && other != self && !found; k++) {
            bool wrote = k / 3 != 0;
            bool atomic = includes(a->strength, self, other) && includes(k % 3, other, self);
            for (uint32_t b = a->shift; b < a->shift + a->bytes && (writes || wrote) && !atomic && !found; b++) {
                if (a->word->accesses[i][wrote][k % 3][b] > self->clock[i]) {
                    report_race(a, other, writes, wrote);
                    found = true;
                }
            }
        }
    }
    for (uint32_t b = a->shift; b < a->shift + a->bytes; b++) {
        a->word->accesses[self->index][writes][a->strength][b] = self->clock[self->index];
    }
}

/* ---- accesses --------------------------------------------------------------------------------------- */

static int strength_of(int scope)
{
    return scope == WEIRT_WEAK_SYS && (m->options.without & WEIRT_WEAK_NO_SYSTEM) != 0 ? WEIRT_WEAK_DEV : scope;
}

static access begin(const void *p, size_t bytes, int order, int strength)
{
    uint32_t without = m->options.without;
    access a;
    step();
    a.word = find_word((uintptr_t)p / 8);
    a.shift = (uint32_t)((uintptr_t)p % 8);
    a.bytes = (uint32_t)bytes;
    a.acquire = (order == __ATOMIC_ACQUIRE || order == __ATOMIC_ACQ_REL) && (without & WEIRT_WEAK_NO_ACQUIRE) == 0;
    a.release = (order == __ATOMIC_RELEASE || order == __ATOMIC_ACQ_REL) && (without & WEIRT_WEAK_NO_RELEASE) == 0;
    a.behind_fence = false;
    a.strength = strength_of(strength);
    return a;
}

static uint64_t mask_of(const access *a)
{
    return (a->bytes == 8 ? ~(uint64_t)0 : ((uint64_t)1 << 8 * a->bytes) - 1) << 8 * a->shift;
}

/* Merges the clock of the value's releases if both scopes cover the other thread's device. */
static void learn_released(clock_vector to, const value *v, int strength)
{
    for (uint32_t device = 0; device < DEVICES; device++) {
        bool same = device == self->device;
        if (same) {
            learn(to, v->released[0][device]);
        }
        if (same || strength == WEIRT_WEAK_SYS) {
            learn(to, v->released[1][device]);
        }
    }
}

/* Reads the value. */
static uint64_t take(const access *a, uint32_t index)
{
    const value *v = &m->values[index];
    meet(index);
    if (a->acquire) {
        learn_released(self->clock, v, a->strength);
    }
    return (v->bits & mask_of(a)) >> 8 * a->shift;
}

/* Stores a value after `previous`, made from it if `joined`. */
static void put(const access *a, uint32_t previous, uint64_t bits, bool joined, bool chain)
{
    uint32_t index = new_value();
    value *v = &m->values[index];
    value *before = &m->values[previous];
    uint64_t mask = mask_of(a);
    v->bits = (before->bits & ~mask) | (bits << 8 * a->shift & mask);
    v->joined = joined;
    v->previous = previous;
    v->next = before->next;
    before->next = index;
    if (v->next != 0) {
        m->values[v->next].previous = index;
    } else {
        a->word->newest = index;
        memcpy((void *)(a->word->address * 8), &v->bits, 8);
    }
    if (chain) {
        memcpy(v->released, before->released, sizeof v->released);
    }
    if (a->release) {
        learn(v->released[a->strength == WEIRT_WEAK_SYS][self->device], self->clock);
    }
    for (int k = 0; k <= (a->strength == WEIRT_WEAK_SYS) && a->behind_fence; k++) {
        learn(v->released[k][self->device], self->fenced[k]);
    }
    meet(index);
}

static uint64_t load(const void *p, size_t bytes, int order, int strength)
{
    access a = begin(p, bytes, order, strength);
    check_access(&a, false);
    return take(&a, choose_read(a.word));
}

static void store_at(const access *a, uint64_t v)
{
    check_access(a, true);
    /* A store to a part of a word needs the rest of the word's newest value. */
    bool part = a->bytes != 8;
    put(a, part ? a->word->newest : choose_previous(a->word), v, part, false);
}

static void store(void *p, size_t bytes, uint64_t v, int order, int strength)
{
    access a = begin(p, bytes, order, strength);
    store_at(&a, v);
}

static uint64_t update(void *p, uint64_t v, bool add, int order, int strength)
{
    if ((m->options.without & WEIRT_WEAK_NO_ATOMIC) != 0) {
        uint64_t old = load(p, 8, order, strength);
        store(p, 8, add ? old + v : old | v, order, strength);
        return old;
    }
    access a = begin(p, 8, order, strength);
    check_access(&a, true);
    uint32_t previous = choose_previous(a.word);
    uint64_t old = take(&a, previous);
    put(&a, previous, add ? old + v : old | v, true, true);
    return old;
}

/* ---- functions that the device headers call; outside of a run they use plain memory ------------------- */

uint64_t weirt_weak_load(const void *p, size_t bytes, int order, int scope)
{
    if (self == NULL) {
        return bytes == 8 ? *(const uint64_t *)p : *(const uint32_t *)p;
    }
    return load(p, bytes, order, scope);
}

void weirt_weak_store(void *p, size_t bytes, uint64_t v, int order, int scope)
{
    if (self != NULL) {
        store(p, bytes, v, order, scope);
    } else {
        memcpy(p, &v, bytes);
    }
}

uint64_t weirt_weak_fetch_add(void *p, uint64_t v, int order, int scope)
{
    if (self != NULL) {
        return update(p, v, true, order, scope);
    }
    uint64_t old = *(uint64_t *)p;
    *(uint64_t *)p = old + v;
    return old;
}

uint64_t weirt_weak_fetch_or(void *p, uint64_t v, int order, int scope)
{
    if (self != NULL) {
        return update(p, v, false, order, scope);
    }
    uint64_t old = *(uint64_t *)p;
    *(uint64_t *)p = old | v;
    return old;
}

/* An exchange that fails stores the old value again. */
uint64_t weirt_weak_compare_exchange(void *p, uint64_t expected, uint64_t v, int order, int scope)
{
    if (self != NULL) {
        access a = begin(p, 8, order, scope);
        check_access(&a, true);
        const uint32_t previous = choose_previous(a.word);
        const uint64_t old = take(&a, previous);
        put(&a, previous, old == expected ? v : old, true, true);
        return old;
    }
    const uint64_t old = *(uint64_t *)p;
    *(uint64_t *)p = old == expected ? v : old;
    return old;
}

void weirt_weak_fence(int order, int scope)
{
    if (self == NULL) {
        return;
    }
    const bool sys = strength_of(scope) == WEIRT_WEAK_SYS;
    if (order == __ATOMIC_RELEASE && (m->options.without & WEIRT_WEAK_NO_RELEASE) == 0) {
        learn(self->fenced[0], self->clock);
        if (sys) {
            learn(self->fenced[1], self->clock);
        }
    }
    if (order == __ATOMIC_ACQUIRE && (m->options.without & WEIRT_WEAK_NO_ACQUIRE) == 0) {
        learn(self->clock, self->loaded[sys]);
    }
}

uint64_t weirt_weak_load_before_fence(const void *p, size_t bytes, int scope)
{
    if (self == NULL) {
        return weirt_weak_load(p, bytes, __ATOMIC_RELAXED, scope);
    }
    access a = begin(p, bytes, __ATOMIC_RELAXED, scope);
    check_access(&a, false);
    const uint32_t index = choose_read(a.word);
    learn_released(self->loaded[0], &m->values[index], WEIRT_WEAK_DEV);
    learn_released(self->loaded[1], &m->values[index], a.strength);
    return take(&a, index);
}

void weirt_weak_store_behind_fence(void *p, size_t bytes, uint64_t v, int scope)
{
    if (self == NULL) {
        weirt_weak_store(p, bytes, v, __ATOMIC_RELAXED, scope);
        return;
    }
    access a = begin(p, bytes, __ATOMIC_RELAXED, scope);
    a.behind_fence = true;
    store_at(&a, v);
}

void weirt_weak_read(const void *p, void *v, size_t bytes)
{
    if (self == NULL) {
        memcpy(v, p, bytes);
        return;
    }
    for (size_t done = 0; done < bytes; done += 8) {
        size_t part = bytes - done < 8 ? bytes - done : 8;
        uint64_t bits = load((const char *)p + done, part, __ATOMIC_RELAXED, WEIRT_WEAK_PLAIN);
        memcpy((char *)v + done, &bits, part);
    }
}

void weirt_weak_write(void *p, const void *v, size_t bytes)
{
    if (self == NULL) {
        memcpy(p, v, bytes);
        return;
    }
    for (size_t done = 0; done < bytes; done += 8) {
        size_t part = bytes - done < 8 ? bytes - done : 8;
        uint64_t bits = 0;
        memcpy(&bits, (const char *)v + done, part);
        store((char *)p + done, part, bits, __ATOMIC_RELAXED, WEIRT_WEAK_PLAIN);
    }
}

void weirt_weak_relax(uint32_t reads)
{
    (void)reads;
    if (self != NULL) {
        m->report->steps++;
        pass_turn(true);
    }
}

uint32_t weirt_weak_multiprocessor(void) { return self == NULL ? 0 : self->index / 2 % 2; }

uint64_t weirt_weak_clock_ns(void) { return self == NULL ? 0 : STEP_NS * (m->report->steps + 1); }

uint32_t weirt_weak_block_or(void *block, uint32_t value_or)
{
    weirt_weak_block *b = (weirt_weak_block *)block;
    uint64_t round = b->round;
    step();
    learn(b->arriving, self->clock);
    b->value |= value_or;
    if (++b->arrived == b->threads) {
        memcpy(b->known, b->arriving, sizeof b->known);
        b->result = b->value;
        b->arrived = 0;
        b->value = 0;
        b->round++;
        for (uint32_t i = 0; i < m->options.threads; i++) {
            if (m->threads[i].waits_at == b) {
                m->threads[i].waits_at = NULL;
            }
        }
    }
    while (b->round == round && !m->report->stuck) {
        self->waits_at = b;
        pass_turn(true);
    }
    self->waits_at = NULL;
    if ((m->options.without & WEIRT_WEAK_NO_BARRIER) == 0) {
        learn(self->clock, b->known);
    }
    return b->result;
}

/* ---- runs -------------------------------------------------------------------------------------------- */

static void run_thread(void)
{
    m->body(m->arg, self->index);
    self->done = true;
    pass_turn(true);
}

static void reset(const weirt_weak_options *options, weirt_weak_report *report)
{
    memset(report, 0, sizeof *report);
    memset(m->table, 0, sizeof m->table);
    m->word_count = 0;
    m->value_count = 1; /* value 0 means none */
    m->options = *options;
    m->report = report;
    m->random = options->seed * 0x2545f4914f6cdd1du;
    /* Varies the delay of stores and the frequency of switches between threads. */
    m->window = (uint64_t)8 << draw(5);
    m->turn_length = 1u << draw(4);
    for (uint32_t i = 0; i < options->threads; i++) {
        thread *t = &m->threads[i];
        memset(t, 0, sizeof *t);
        t->index = i;
        t->device = options->device[i] % DEVICES;
        (void)getcontext(&t->context);
        t->context.uc_stack.ss_sp = stacks[i];
        t->context.uc_stack.ss_size = STACK_BYTES;
        t->context.uc_link = &m->caller;
        makecontext(&t->context, run_thread, 0);
    }
}

int weirt_weak_run(const weirt_weak_options *options, void (*body)(void *arg, uint32_t index), void *arg,
                   weirt_weak_report *report)
{
    if (options->threads == 0 || options->threads > THREADS) {
        return -1;
    }
    m->body = body;
    m->arg = arg;
    reset(options, report);
    self = &m->threads[draw(options->threads)];
    swapcontext(&m->caller, &self->context);
    self = NULL;
    return 0;
}
