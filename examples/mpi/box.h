/* box.h - a box of bytes inside a cube of bytes, and what moves it without MPI: rows by the CPU, kernels and copies by
 * the GPU. */
#ifndef BOX_H
#define BOX_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* x bytes of y rows of z planes, from byte 0 of a cube of edge^3 bytes on. */
typedef struct box {
    size_t edge;
    size_t x;
    size_t y;
    size_t z;
} box;

/* The number of GPUs; 0 too in a program that was built without nvcc. */
int gpu_count(void);
/* Chooses the GPU of this process. */
void gpu_use(int index);
/* Ends the program with a text if the GPU's memory is full. */
void *gpu_allocate(size_t bytes);
void gpu_free(void *pointer);
/* Host memory that the GPU can access. */
void *gpu_allocate_pinned(size_t bytes);
void gpu_free_pinned(void *pointer);
/* Between any two memories; returns when the copy is done. */
void gpu_copy(void *dst, const void *src, size_t bytes);
void gpu_synchronize(void);

/* Each puts work on the GPU and returns. `packed` is GPU memory, or pinned host memory. */
void gpu_pack(const box *b, const void *cube, void *packed);
void gpu_unpack(const box *b, void *cube, const void *packed);
/* The box as one copy of three dimensions. */
void gpu_copy_box(const box *b, const void *cube, void *packed);
/* One copy for each row; with a synchronisation behind each if `synchronize` is not 0. */
void gpu_copy_rows(const box *b, const void *cube, void *packed, int synchronize);

#ifdef __cplusplus
}
#endif

#endif
