/* box_gpu.c - the GPU's part of mpi_pack: CUDA C++ where nvcc builds it, otherwise functions that are never called. */
#include "box.h"

#include <stdio.h>
#include <stdlib.h>

#ifdef __CUDACC__

#include <cuda_runtime.h>
#include <stdint.h>

#define BLOCK_THREADS 512u
#define BLOCKS_MAX 65535u

static void check(cudaError_t error, const char *call)
{
    if (error != cudaSuccess) {
        fprintf(stderr, "mpi_pack: %s: %s\n", call, cudaGetErrorString(error));
        exit(1);
    }
}

int gpu_count(void)
{
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

void gpu_use(int index) { check(cudaSetDevice(index), "cudaSetDevice"); }

void *gpu_allocate(size_t bytes)
{
    void *pointer = NULL;
    check(cudaMalloc(&pointer, bytes), "cudaMalloc");
    return pointer;
}

void gpu_free(void *pointer) { check(cudaFree(pointer), "cudaFree"); }

void *gpu_allocate_pinned(size_t bytes)
{
    void *pointer = NULL;
    check(cudaMallocHost(&pointer, bytes), "cudaMallocHost");
    return pointer;
}

void gpu_free_pinned(void *pointer) { check(cudaFreeHost(pointer), "cudaFreeHost"); }

void gpu_copy(void *dst, const void *src, size_t bytes)
{
    check(cudaMemcpy(dst, src, bytes, cudaMemcpyDefault), "cudaMemcpy");
}

void gpu_synchronize(void) { check(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }

/* Moves one word a thread; the threads of a block fill x, then y, then z. */
template <typename word, bool to_cube> __global__ void move_box(box b, char *cube, char *packed)
{
    for (size_t z = blockIdx.z * blockDim.z + threadIdx.z; z < b.z; z += gridDim.z * blockDim.z) {
        for (size_t y = blockIdx.y * blockDim.y + threadIdx.y; y < b.y; y += gridDim.y * blockDim.y) {
            word *row = (word *)(cube + (z * b.edge + y) * b.edge);
            word *part = (word *)(packed + (z * b.y + y) * b.x);
            for (size_t x = blockIdx.x * blockDim.x + threadIdx.x; x < b.x / sizeof(word);
                 x += gridDim.x * blockDim.x) {
                if (to_cube) {
                    row[x] = part[x];
                } else {
                    part[x] = row[x];
                }
            }
        }
    }
}

/* The least power of two that is not below `count`, up to `most`. */
static unsigned side(size_t count, unsigned most)
{
    unsigned out = 1;
    while (out < count && out < most) {
        out *= 2;
    }
    return out;
}

static unsigned blocks(size_t count, unsigned threads)
{
    const size_t out = (count + threads - 1) / threads;
    return out < BLOCKS_MAX ? (unsigned)out : BLOCKS_MAX;
}

template <typename word, bool to_cube> static void launch(const box *b, void *cube, void *packed)
{
    const size_t words = b->x / sizeof(word);
    dim3 threads;
    threads.x = side(words, BLOCK_THREADS);
    threads.y = side(b->y, BLOCK_THREADS / threads.x);
    threads.z = side(b->z, BLOCK_THREADS / threads.x / threads.y);
    threads.z = threads.z < 64 ? threads.z : 64; /* CUDA's limit */
    const dim3 grid(blocks(words, threads.x), blocks(b->y, threads.y), blocks(b->z, threads.z));
    move_box<word, to_cube><<<grid, threads>>>(*b, (char *)cube, (char *)packed);
    check(cudaGetLastError(), "the launch of a kernel");
}

/* With the widest word that divides rows and strides; memory of the GPU is aligned to it. */
template <bool to_cube> static void launch_widest(const box *b, void *cube, void *packed)
{
    const size_t sizes = b->x | b->edge;
    if (sizes % 8 == 0) {
        launch<uint64_t, to_cube>(b, cube, packed);
    } else if (sizes % 4 == 0) {
        launch<uint32_t, to_cube>(b, cube, packed);
    } else if (sizes % 2 == 0) {
        launch<uint16_t, to_cube>(b, cube, packed);
    } else {
        launch<uint8_t, to_cube>(b, cube, packed);
    }
}

void gpu_pack(const box *b, const void *cube, void *packed) { launch_widest<false>(b, (void *)cube, packed); }

void gpu_unpack(const box *b, void *cube, const void *packed) { launch_widest<true>(b, cube, (void *)packed); }

void gpu_copy_box(const box *b, const void *cube, void *packed)
{
    cudaMemcpy3DParms copy = {};
    copy.srcPtr = make_cudaPitchedPtr((void *)cube, b->edge, b->edge, b->edge);
    copy.dstPtr = make_cudaPitchedPtr(packed, b->x, b->x, b->y);
    copy.extent = make_cudaExtent(b->x, b->y, b->z);
    copy.kind = cudaMemcpyDefault;
    check(cudaMemcpy3DAsync(&copy, 0), "cudaMemcpy3DAsync");
}

void gpu_copy_rows(const box *b, const void *cube, void *packed, int synchronize)
{
    char *to = (char *)packed;
    for (size_t z = 0; z < b->z; z++) {
        for (size_t y = 0; y < b->y; y++) {
            const char *row = (const char *)cube + (z * b->edge + y) * b->edge;
            check(cudaMemcpyAsync(to, row, b->x, cudaMemcpyDefault, 0), "cudaMemcpyAsync");
            if (synchronize) {
                check(cudaStreamSynchronize(0), "cudaStreamSynchronize");
            }
            to += b->x;
        }
    }
}

#else

static void never(void)
{
    fprintf(stderr, "mpi_pack was built without nvcc and knows no GPU\n");
    exit(1);
}

int gpu_count(void) { return 0; }

void gpu_use(int index)
{
    (void)index;
    never();
}

void *gpu_allocate(size_t bytes)
{
    (void)bytes;
    never();
    return NULL;
}

void gpu_free(void *pointer)
{
    (void)pointer;
    never();
}

void *gpu_allocate_pinned(size_t bytes) { return gpu_allocate(bytes); }

void gpu_free_pinned(void *pointer) { gpu_free(pointer); }

void gpu_copy(void *dst, const void *src, size_t bytes)
{
    (void)dst;
    (void)src;
    (void)bytes;
    never();
}

void gpu_synchronize(void) { never(); }

void gpu_pack(const box *b, const void *cube, void *packed) { gpu_copy(packed, cube, b->x); }

void gpu_unpack(const box *b, void *cube, const void *packed) { gpu_copy(cube, packed, b->x); }

void gpu_copy_box(const box *b, const void *cube, void *packed) { gpu_copy(packed, cube, b->x); }

void gpu_copy_rows(const box *b, const void *cube, void *packed, int synchronize)
{
    (void)synchronize;
    gpu_copy(packed, cube, b->x);
}

#endif
