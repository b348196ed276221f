/* type.c - entries of datatypes.
 *
 * `types_mutex` makes finding an entry and taking a reference one step, and attaching one if there is none. Decoding
 * can take milliseconds and needs no lock: of two threads that decode one datatype, the second drops its entry. The
 * callback of the attribute does not take the mutex: MPI calls it inside of calls that hold it.
 * `list_mutex` guards the list of all entries and is never held in a call of MPI. */
#include "src/mpi/type.h"

#include <pthread.h>

#include "src/mpi/alloc.h"
#include "src/mpi/report.h"

static pthread_mutex_t types_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t list_mutex = PTHREAD_MUTEX_INITIALIZER;
static weiri_mpi_type *first;
static int keyval = MPI_KEYVAL_INVALID;
static MPI_Comm self = MPI_COMM_NULL;

static void list_add(weiri_mpi_type *type)
{
    (void)pthread_mutex_lock(&list_mutex);
    type->next = first;
    if (first != NULL) {
        first->previous = type;
    }
    first = type;
    (void)pthread_mutex_unlock(&list_mutex);
}

static void list_remove(weiri_mpi_type *type)
{
    (void)pthread_mutex_lock(&list_mutex);
    if (type->previous != NULL) {
        type->previous->next = type->next;
    } else {
        first = type->next;
    }
    if (type->next != NULL) {
        type->next->previous = type->previous;
    }
    (void)pthread_mutex_unlock(&list_mutex);
}

void weiri_mpi_type_put(weiri_mpi_type *type)
{
    if (type == NULL || __atomic_sub_fetch(&type->references, 1, __ATOMIC_ACQ_REL) != 0) {
        return;
    }
    list_remove(type);
    weir_layout_destroy(type->layout);
    weiri_mpi_free(type);
}

static int forget(MPI_Datatype datatype, int key, void *value, void *state)
{
    weiri_mpi_type *type = value;
    (void)datatype;
    (void)key;
    (void)state;
    type->attached = MPI_DATATYPE_NULL;
    weiri_mpi_type_put(type);
    return MPI_SUCCESS;
}

/* ---- start and end --------------------------------------------------------------------------------------- */

bool weiri_mpi_type_start(void)
{
    if (PMPI_Comm_dup(MPI_COMM_SELF, &self) != MPI_SUCCESS ||
        PMPI_Comm_set_errhandler(self, MPI_ERRORS_RETURN) != MPI_SUCCESS) {
        return false;
    }
    return PMPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, forget, &keyval, NULL) == MPI_SUCCESS;
}

MPI_Comm weiri_mpi_type_self(void) { return self; }

/* Frees what MPI has for an entry; false if there is nothing. MPI may end a datatype with its last duplicate, and then
 * the entry, or others, are gone. */
static bool release_one(void)
{
    for (weiri_mpi_type *type = first; type != NULL; type = type->next) {
        MPI_Datatype kept = type->kept;
        if (kept != MPI_DATATYPE_NULL) {
            type->kept = MPI_DATATYPE_NULL;
            (void)PMPI_Type_free(&kept);
            return true;
        }
        if (type->attached != MPI_DATATYPE_NULL) {
            return PMPI_Type_delete_attr(type->attached, keyval) == MPI_SUCCESS;
        }
    }
    return false;
}

void weiri_mpi_type_stop(void)
{
    while (release_one()) {
    }
    (void)PMPI_Type_free_keyval(&keyval);
    (void)PMPI_Comm_free(&self);
}

/* Requests that the program has never completed still have references. */
void weiri_mpi_type_end(void)
{
    while (first != NULL) {
        weiri_mpi_type *type = first;
        first = type->next;
        weir_layout_destroy(type->layout);
        weiri_mpi_free(type);
    }
}

/* ---- entries --------------------------------------------------------------------------------------------- */

/* An entry that no datatype has yet. Its reference is the datatype's. */
static weiri_mpi_type *create(MPI_Datatype datatype)
{
    MPI_Count size = 0, lb = 0, extent = 0, true_lb = 0, true_extent = 0;
    if (PMPI_Type_size_x(datatype, &size) != MPI_SUCCESS ||
        PMPI_Type_get_extent_x(datatype, &lb, &extent) != MPI_SUCCESS ||
        PMPI_Type_get_true_extent_x(datatype, &true_lb, &true_extent) != MPI_SUCCESS || size < 0) {
        return NULL;
    }
    weiri_mpi_type *type = weiri_mpi_alloc(1, sizeof *type);
    if (type == NULL) {
        weiri_mpi_explain(WEIRI_MPI_NO_MEMORY, "an entry of a datatype");
        return NULL;
    }
    type->references = 1;
    type->size = (uint64_t)size;
    type->extent = (int64_t)extent;
    type->true_lb = (int64_t)true_lb;
    type->true_extent = (int64_t)true_extent;
    type->attached = MPI_DATATYPE_NULL;
    type->kept = MPI_DATATYPE_NULL;
    list_add(type);
    if (size != 0) {
        /* A refusal is logged when data of the datatype lies in a device's memory. */
        (void)weiri_mpi_decode(datatype, &type->layout, type->reason);
    }
    return type;
}

/* The entry of the datatype with a new reference; NULL without an entry. With `made`, that one becomes the entry if
 * there is no other; otherwise the caller keeps it. */
static weiri_mpi_type *find(MPI_Datatype datatype, weiri_mpi_type *made)
{
    void *value = NULL;
    int found = 0;
    (void)pthread_mutex_lock(&types_mutex);
    weiri_mpi_type *type = PMPI_Type_get_attr(datatype, keyval, &value, &found) == MPI_SUCCESS && found ? value : NULL;
    if (type == NULL && made != NULL && PMPI_Type_set_attr(datatype, keyval, made) == MPI_SUCCESS) {
        made->attached = datatype;
        type = made;
    }
    if (type != NULL) {
        (void)__atomic_add_fetch(&type->references, 1, __ATOMIC_RELAXED);
    }
    (void)pthread_mutex_unlock(&types_mutex);
    return type;
}

/* Makes the entry of a datatype, unless another thread does so at the same time. */
static weiri_mpi_type *make(MPI_Datatype datatype)
{
    weiri_mpi_type *made = create(datatype);
    weiri_mpi_type *type = made != NULL ? find(datatype, made) : NULL;
    if (type != made) {
        weiri_mpi_type_put(made);
    }
    return type;
}

void weiri_mpi_type_commit(MPI_Datatype datatype)
{
    weiri_mpi_type *type = find(datatype, NULL);
    weiri_mpi_type_put(type != NULL ? type : make(datatype));
}

weiri_mpi_type *weiri_mpi_type_get(MPI_Datatype datatype)
{
    weiri_mpi_type *type = datatype != MPI_DATATYPE_NULL ? find(datatype, NULL) : NULL;
    /* A named datatype, a duplicate, or one that was not committed: MPI says whether it can be sent. */
    if (type == NULL && datatype != MPI_DATATYPE_NULL &&
        PMPI_Send(NULL, 0, datatype, MPI_PROC_NULL, 0, self) == MPI_SUCCESS) {
        type = make(datatype);
    }
    return type;
}

/* A duplicate keeps its original alive in MPI, and the original keeps the entry. So the duplicate must end for the
 * entry to end: when the program has freed the datatype, and no request needs it. */
bool weiri_mpi_type_keep(weiri_mpi_type *type, MPI_Datatype datatype)
{
    (void)pthread_mutex_lock(&types_mutex);
    const bool good = type->kept != MPI_DATATYPE_NULL || PMPI_Type_dup(datatype, &type->kept) == MPI_SUCCESS;
    type->keepers += good;
    (void)pthread_mutex_unlock(&types_mutex);
    return good;
}

/* Ends the duplicate if nothing needs it. The caller has a reference and does not hold types_mutex. */
static void drop_kept(weiri_mpi_type *type)
{
    MPI_Datatype kept = MPI_DATATYPE_NULL;
    (void)pthread_mutex_lock(&types_mutex);
    if (type->freed && type->keepers == 0) {
        kept = type->kept;
        type->kept = MPI_DATATYPE_NULL;
    }
    (void)pthread_mutex_unlock(&types_mutex);
    if (kept != MPI_DATATYPE_NULL) {
        (void)PMPI_Type_free(&kept);
    }
}

void weiri_mpi_type_release(weiri_mpi_type *type)
{
    (void)pthread_mutex_lock(&types_mutex);
    type->keepers--;
    (void)pthread_mutex_unlock(&types_mutex);
    drop_kept(type);
}

int weiri_mpi_type_free(MPI_Datatype *datatype)
{
    weiri_mpi_type *type = *datatype != MPI_DATATYPE_NULL ? find(*datatype, NULL) : NULL;
    const int result = PMPI_Type_free(datatype);
    if (type != NULL && result == MPI_SUCCESS) {
        (void)pthread_mutex_lock(&types_mutex);
        type->freed = true;
        (void)pthread_mutex_unlock(&types_mutex);
        drop_kept(type);
    }
    weiri_mpi_type_put(type);
    return result;
}
