/* What NCCL and RCCL ask of a tuner plugin: the binary interface, versions 4 to 6, written from its documentation.
 *
 * NCCL opens the library that NCCL_TUNER_PLUGIN names and looks for the symbols ncclTunerPlugin_v6, _v5, _v4, in this
 * order. Tables of costs are [algorithm][protocol] in microseconds; a negative cost means "not possible here". */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef enum { SYNTONY_NCCL_SUCCESS = 0, SYNTONY_NCCL_SYSTEM_ERROR = 2, SYNTONY_NCCL_INTERNAL_ERROR = 3 } nccl_result;

/* Numbers of collectives, algorithms and protocols, as NCCL counts them. */
enum { NCCL_BROADCAST, NCCL_REDUCE, NCCL_ALL_GATHER, NCCL_REDUCE_SCATTER, NCCL_ALL_REDUCE };
enum { NCCL_TREE, NCCL_RING, NCCL_COLLNET_DIRECT, NCCL_COLLNET_CHAIN, NCCL_NVLS, NCCL_NVLS_TREE, NCCL_PAT };
enum { NCCL_LL, NCCL_LL128, NCCL_SIMPLE };

enum { NCCL_LEVEL_WARN = 2, NCCL_LEVEL_INFO = 3 };
enum { NCCL_SUBSYSTEM_TUNING = 64 };

typedef void (*nccl_log)(int level, unsigned long subsystems, const char* file, int line, const char* format, ...);

typedef nccl_result (*nccl_get_coll_info)(void* context, int collective, size_t bytes, int operations, float** costs,
                                          int algorithms, int protocols, int registered, int* channels);

/* Version 4: the communicator's sizes, a log, and a context to be made. */
typedef struct {
  const char* name;
  nccl_result (*init)(size_t ranks, size_t nodes, nccl_log log, void** context);
  nccl_result (*get_coll_info)(void* context, int collective, size_t bytes, int operations, float** costs,
                               int algorithms, int protocols, int registered, int* channels);
  nccl_result (*destroy)(void* context);
} nccl_tuner_v4;

/* Version 5: also the communicator's id, its NVLink domains and the constants of the cost model, none of which we use. */
typedef struct {
  const char* name;
  nccl_result (*init)(void** context, uint64_t communicator, size_t ranks, size_t nodes, nccl_log log, void* domains,
                      void* constants);
  nccl_get_coll_info get_coll_info;
  nccl_result (*finalize)(void* context);
} nccl_tuner_v5;

/* Version 6: also a say in the size of chunks. */
typedef struct {
  const char* name;
  nccl_result (*init)(void** context, uint64_t communicator, size_t ranks, size_t nodes, nccl_log log, void* domains,
                      void* constants);
  nccl_get_coll_info get_coll_info;
  nccl_result (*finalize)(void* context);
  nccl_result (*get_chunk_size)(void* context, int collective, size_t bytes, int algorithm, int protocol, int channels,
                                size_t* chunk);
} nccl_tuner_v6;
