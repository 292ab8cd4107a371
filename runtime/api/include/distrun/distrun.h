/* distrun: the C API. Opaque handles, no exceptions, no framework types.
 *
 * Threads: any thread may call any function unless its comment says otherwise. No function calls back, except for
 * distrun_describe_by.
 * Structs start with struct_size; set it to sizeof the struct (DISTRUN_INIT does). New fields are only appended.
 * Every function that can fail returns a distrun_code. distrun_last_error() then has the text for this thread.
 * A call that waits may return DISTRUN_INTERRUPTED, which is no failure: a signal handler ran during the wait. It
 * also happens, without any handler, when the process was stopped and continues (Ctrl-Z and fg, a batch system's
 * suspend, a debugger). Call again, as examples/c_allreduce.c does.
 * After fork the child may not use this API: every call returns DISTRUN_NOT_INITIALIZED and says so.
 */
#ifndef DISTRUN_DISTRUN_H
#define DISTRUN_DISTRUN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DISTRUN_API_VERSION 1
#if defined(__GNUC__)
#define DISTRUN_API __attribute__((visibility("default")))
#else
#define DISTRUN_API
#endif

typedef struct distrun_session distrun_session; /* one membership in a job; made by init, freed by close */
typedef struct distrun_handle distrun_handle;   /* one operation; freed by release */
typedef struct distrun_watch distrun_watch;     /* gives completed operations to one thread; freed by watch_close */

typedef enum distrun_code {
  DISTRUN_OK = 0,
  DISTRUN_INVALID_ARGUMENT = 1,
  DISTRUN_DUPLICATE_NAME = 2,
  DISTRUN_MISMATCH = 3,
  DISTRUN_RANK_LOST = 4,
  DISTRUN_RANK_LEFT = 5,
  DISTRUN_TIMEOUT = 6,
  DISTRUN_NOT_INITIALIZED = 7,
  DISTRUN_UNSUPPORTED = 8,
  DISTRUN_PROTOCOL = 9,
  DISTRUN_SYSTEM = 10,
  DISTRUN_INTERRUPTED = 11,
  DISTRUN_ABORTED = 12,
  DISTRUN_SHUT_DOWN = 13,
  DISTRUN_OUT_OF_MEMORY = 14,
  DISTRUN_INTERNAL = 15
} distrun_code;

typedef enum distrun_dtype {
  DISTRUN_UINT8 = 0,
  DISTRUN_INT8 = 1,
  DISTRUN_INT16 = 2,
  DISTRUN_INT32 = 3,
  DISTRUN_INT64 = 4,
  DISTRUN_FLOAT16 = 5,
  DISTRUN_BFLOAT16 = 6,
  DISTRUN_FLOAT32 = 7,
  DISTRUN_FLOAT64 = 8,
  DISTRUN_BOOL = 9,
  DISTRUN_UINT16 = 10,
  DISTRUN_UINT32 = 11,
  DISTRUN_UINT64 = 12,
  /* Real and imaginary part, as in C's complex types. They have DISTRUN_SUM, AVERAGE and PRODUCT. */
  DISTRUN_COMPLEX64 = 13,
  DISTRUN_COMPLEX128 = 14,
  /* For operations that only move data: allgather, broadcast, alltoall. */
  DISTRUN_FLOAT8_E4M3FN = 15,
  DISTRUN_FLOAT8_E5M2 = 16,
  DISTRUN_FLOAT8_E4M3FNUZ = 17,
  DISTRUN_FLOAT8_E5M2FNUZ = 18,
  DISTRUN_FLOAT8_E8M0FNU = 19,
  DISTRUN_FLOAT8_E4M3B11FNUZ = 20,
  DISTRUN_FLOAT8_E4M3 = 21,
  DISTRUN_FLOAT8_E3M4 = 22,
  DISTRUN_COMPLEX32 = 23
} distrun_dtype;

typedef enum distrun_reduce {
  DISTRUN_SUM = 0,
  DISTRUN_AVERAGE = 1,
  DISTRUN_MIN = 2,
  DISTRUN_MAX = 3,
  DISTRUN_PRODUCT = 4
} distrun_reduce;

typedef enum distrun_kind {
  DISTRUN_ALLREDUCE = 0,
  DISTRUN_ALLGATHER = 1,
  DISTRUN_BROADCAST = 2,
  DISTRUN_BARRIER = 3,
  DISTRUN_ALLTOALL = 4,
  DISTRUN_REDUCESCATTER = 5,
  DISTRUN_JOIN = 6
} distrun_kind;

typedef struct distrun_error {
  uint32_t struct_size;
  int32_t code;         /* distrun_code */
  const char* message;  /* never NULL; a whole sentence */
  const char* tensor;   /* never NULL, may be "" */
  const char* host;     /* never NULL, may be "" */
  const char* cause;    /* never NULL, may be "" */
  const int32_t* ranks; /* world ranks that the failure concerns */
  uint64_t num_ranks;
  int32_t usable; /* 0: the job cannot go on */
} distrun_error;

typedef struct distrun_options {
  uint32_t struct_size;
  uint32_t num_settings;
  const char* const* settings; /* "name=value", see docs/reference/settings.md; they override the environment */
} distrun_options;

typedef struct distrun_world {
  uint32_t struct_size;
  int32_t rank, size, local_rank, local_size, cross_rank, cross_size;
  const char* host;   /* valid until close */
  const char* job_id; /* valid until close */
  uint32_t num_gpus;
  const int32_t* gpus; /* this rank's own, as numbered among those it sees; none: unknown; valid until close */
} distrun_world;

/* One operation to enqueue. `input` and `output` must stay valid and unchanged until the handle is complete.
 *
 * alltoall: dimension 0 is divided into one block of rows for each member, in member order: `splits` rows each, or
 * equal shares. Rows beyond the sum of the splits are not sent. The result has the blocks of all members in member
 * order. Unequal splits need a process set of at most 1024 ranks.
 * reducescatter: the members' inputs have one shape and are reduced. Each member gets its share of the rows of
 * dimension 0. The shares are equal, but the first (rows % members) of them have one row more.
 * join: this rank has no more data. Until every member of the process set has joined, this rank takes part in
 * operations that the others submit: with the neutral element in an allreduce (an average still divides by the size
 * of the set), with no rows in an allgather, as a receiver in a broadcast. Operations that need its data (alltoall,
 * reducescatter, a broadcast from it, a prescaled min, max or product) fail on all ranks. Until the join is complete
 * this rank can submit nothing else to the set. If the device of a join is a GPU, this rank uses it for operations
 * on GPUs, as long as it has had no tensor on a GPU in the set. */
typedef struct distrun_op {
  uint32_t struct_size;
  int32_t kind;        /* distrun_kind */
  const char* name;    /* 1 to 1024 bytes, unique among the operations in flight of its process set; copied. join:
                        * ignored */
  int32_t dtype;       /* distrun_dtype */
  int32_t reduce;      /* distrun_reduce; allreduce, reducescatter */
  int32_t device_type; /* 0 cpu, 1 cuda */
  int32_t device_index;
  const int64_t* shape; /* copied */
  uint32_t ndim;        /* at most 64 */
  int32_t root;         /* broadcast: world rank */
  const void* input;
  void* output;    /* allreduce, broadcast: same size as input, may equal it. reducescatter: this rank's share, must not
                    * overlap the input. allgather, alltoall: NULL, see distrun_result */
  double prescale; /* allreduce, reducescatter: set both, 1.0 means no scaling; 0 in both is an error */
  double postscale;
  int32_t process_set; /* 0 is the global one */
  int32_t group;       /* at most 4096 operations of one call with the same group >= 0 run all or none; -1: none */
  void* stream;        /* cuda: the stream that produces `input` (NULL: the default one). The host does not wait for it:
                        * the operation starts on the device after the work that the stream has at this time. When the
                        * handle is complete, every stream may use the output at once. All tensors of a rank in one
                        * process set must be on one GPU */
  const int64_t* splits; /* alltoall: rows for each member; copied */
  uint32_t num_splits;   /* 0: equal shares */
} distrun_op;

typedef struct distrun_result {
  uint32_t struct_size;
  uint32_t ndim;
  const int64_t* shape; /* allgather, alltoall: dimension 0 is the sum of first_dims. reducescatter: of the share */
  const void* data; /* allgather, alltoall: owned by the handle, on the device of the input, valid until release. GPU
                     * work that reads it must end before the release. Other kinds: the op's output */
  uint64_t bytes;   /* of the whole output */
  const int64_t* first_dims; /* allgather: dimension 0 of each member, in member order. alltoall: rows received from
                              * each. join: one value, the world rank that joined last */
  uint32_t num_members;
} distrun_result;

/* A struct with struct_size set and all other fields zero. */
#ifdef __cplusplus
extern "C++" { /* a template needs it, and the program may include this header in its own extern "C" */
template <class T>
inline T distrun_make() {
  T made = {};
  made.struct_size = sizeof(T);
  return made;
}
}
#define DISTRUN_INIT(type) distrun_make<type>()
#else
#define DISTRUN_INIT(type) ((type){.struct_size = sizeof(type)})
#endif

DISTRUN_API uint32_t distrun_api_version(void); /* DISTRUN_API_VERSION of the library */
DISTRUN_API const char* distrun_version(void);  /* "0.1.0" */
DISTRUN_API const char* distrun_code_name(int32_t code);

/* Fills `error` with the last failure of this thread. Valid until the next failing call on this thread. */
DISTRUN_API void distrun_last_error(distrun_error* error);

/* Joins the job that the environment describes (docs/reference/settings.md), or makes a job of one rank. Collective:
 * waits for all ranks, at most start_timeout. Then DISTRUN_TIMEOUT names the missing ranks and ends the job. `options`
 * may be NULL. While a session is open, a second one in the process is refused; distrun_current() returns the open one.
 * After a failure `*session` is NULL. That refusal, and the error in a forked child, leave it unchanged. */
DISTRUN_API int32_t distrun_init(const distrun_options* options, distrun_session** session);
/* For a library: returns the session that the program has opened by distrun_init, distrun.hpp or Python's init(). It
 * is open from the end of distrun_init to distrun_close. Returns NULL if none is open, and in a forked child. Any
 * thread may call it. The session is borrowed: its owner shuts it down and closes it, and no other thread may be
 * inside a call then. So use it only within calls that the program makes, get it again in each of them, and release
 * handles before they return. Give operations names that the program does not use ("mylib/..."). Every rank must
 * make the calls on process sets in the program's order. */
DISTRUN_API distrun_session* distrun_current(void);
/* Leaves the job. Waits until all ranks have left, at most shutdown_timeout, while operations in flight complete.
 * Nothing can be submitted afterwards. After shutdown_timeout a warning names the ranks that have not left, and the
 * call still returns DISTRUN_OK. Rank 0 is different: the others need it until they have left, so it waits for them
 * without a limit (docs/reference/errors.md).
 * DISTRUN_TIMEOUT: after this time an operation of this rank is still in flight, or rank 0 does not confirm that
 * this rank leaves. DISTRUN_INTERRUPTED: this rank has not left yet, call again. Repeated calls are always allowed.
 * If the job has failed, or fails before all ranks have left, returns that failure. DISTRUN_RANK_LOST,
 * DISTRUN_RANK_LEFT and DISTRUN_ABORTED are then no fault of a rank that has done its work. It may end as after
 * DISTRUN_OK. */
DISTRUN_API int32_t distrun_shutdown(distrun_session* session);
/* Tells every rank that this rank ends because of `cause` (an uncaught exception). Does not wait, with one
 * exception: if rank 0 itself replaces a launcher (mpirun, srun), it waits up to 2 s until the others have received
 * this. */
DISTRUN_API int32_t distrun_abort(distrun_session* session, const char* cause);
/* The same, with facts for `distrun --report`: the line of the program that failed, and the tensor of the failed
 * operation. NULL or "": unknown, or none. */
DISTRUN_API int32_t distrun_abort_at(distrun_session* session, const char* cause, const char* file, int32_t line,
                                     const char* tensor);
/* Every rank calls it once per step. `stop` becomes 1 on all ranks from the same call on, counted on each rank. This
 * happens after a rank got SIGTERM, SIGUSR1 or SIGUSR2, a rank passed request = 1, or the launcher was asked
 * (--preempt-signal). Else it is 0. Until then a call sends no message and does not wait for other ranks. Right
 * after a request it waits for one round trip. From the first call on, these signals do not end the process, unless
 * the program handles them itself; a second signal does. DISTRUN_INTERRUPTED: the call does not count, call again. */
DISTRUN_API int32_t distrun_should_stop(distrun_session* session, int32_t request, int32_t* stop);
/* Frees the session, after shutdown or without it. Without it, the others see this rank as dead. Release handles
 * first. No other thread may be inside a call. */
DISTRUN_API void distrun_close(distrun_session* session);

DISTRUN_API int32_t distrun_get_world(distrun_session* session, distrun_world* world);
/* Text for users. `what` is "settings", "backends" (one line each: name, ok or the reason), "control", or "why" (the
 * chosen backend per device with reasons). Returns the length needed without the final zero. Writes at most `size`
 * bytes. `session` may be NULL for "backends" and "settings". Returns 0 for any other question, and -1 on an error,
 * as in a forked child.
 * "why.json" and "backends.json" have the same facts as JSON. "why.json" is a list with an object for each process
 * set and kind of device: "process_set", "device", "backend", "chosen" {"code", "reason", "score"} and "losers". The
 * losers are a list of {"backend", "code", "reason"}. They also have "rank" and "host" if one member is the reason,
 * and "score" if all members can use the backend. "backends.json" is {"backends": [{"backend", "usable", "reason"}],
 * "warnings": [text]}; nccl also has a "library_version". Fields may be added. */
DISTRUN_API int64_t distrun_query(distrun_session* session, const char* what, char* buffer, uint64_t size);

#define DISTRUN_MAC_SIZE 32
/* Writes DISTRUN_MAC_SIZE bytes to `mac`: a hash of `data` that only this job's ranks can make. It differs for each
 * `purpose`. Use it for data that must not change on its way, since tensors may be changed between hosts
 * (SECURITY.md). The sender sends it with the data; the receiver computes it again and compares. All zeros in a
 * job of one rank. */
DISTRUN_API int32_t distrun_mac(distrun_session* session, const char* purpose, const void* data, uint64_t size,
                                void* mac);

/* Submits `count` operations, all or none. `ops` is an array with stride ops[0].struct_size, which holds for all of
 * them. `handles` receives one handle each. Does not wait for other ranks. At most 1,048,576 operations in one call;
 * the same limit holds for handles in calls that take several. */
DISTRUN_API int32_t distrun_enqueue(distrun_session* session, const distrun_op* ops, uint64_t count,
                                    distrun_handle** handles);
/* Waits for completion, at most `timeout` seconds (negative: no limit). While distrun_poll() returns 0, the
 * operation is running and its memory is in use, whatever this call has returned. DISTRUN_TIMEOUT and
 * DISTRUN_INTERRUPTED then leave the handle unchanged; wait again. The same holds for DISTRUN_OUT_OF_MEMORY and
 * DISTRUN_INTERNAL if the wait itself failed. Otherwise returns the operation's own result. That is also
 * DISTRUN_TIMEOUT if stall_shutdown_time has ended the job. */
DISTRUN_API int32_t distrun_wait(distrun_handle* handle, double timeout);
/* Waits for all handles. Returns the result of the first one that failed and stores its index (`failed` may be
 * NULL). The index is `count` if none failed or the wait itself failed. So the index tells a DISTRUN_TIMEOUT of an
 * operation from that of the wait. This function and distrun_wait_any skip NULL handles. If all are NULL, they
 * return DISTRUN_INVALID_ARGUMENT. */
DISTRUN_API int32_t distrun_wait_all(distrun_handle* const* handles, uint64_t count, double timeout, uint64_t* failed);
/* Waits for any handle. Stores the index of the first completed one and returns the result of that operation. The
 * index is `count` if the wait itself failed. To get another one next time, release this handle and set it to NULL. */
DISTRUN_API int32_t distrun_wait_any(distrun_handle* const* handles, uint64_t count, double timeout, uint64_t* index);
/* 1 if complete, 0 if not. 1 in a forked child, where distrun_wait() gives the reason. */
DISTRUN_API int32_t distrun_poll(distrun_handle* handle);
/* Both need a completed handle. Their results stay valid until release. */
DISTRUN_API int32_t distrun_get_error(distrun_handle* handle, distrun_error* error);
DISTRUN_API int32_t distrun_get_result(distrun_handle* handle, distrun_result* result);
/* Frees the handle. A handle in flight is freed when it completes, and its memory must stay valid until then. A
 * completed handle whose result is in host memory may also be released after distrun_close. */
DISTRUN_API void distrun_release(distrun_handle* handle);

/* A watch is for programs that submit from many threads and must not block there, such as kernels of a framework
 * with its own threads. Any thread adds submitted operations. One thread takes completed ones, in the order of
 * completion. */
DISTRUN_API int32_t distrun_watch_open(distrun_session* session, distrun_watch** watch);
/* distrun_watch_next() returns `tag` once, when all of the handles are complete, failed or not. The caller keeps the
 * handles. Returns DISTRUN_SHUT_DOWN after distrun_watch_end(), and then adds nothing. */
DISTRUN_API int32_t distrun_watch_add(distrun_watch* watch, distrun_handle* const* handles, uint64_t count, void* tag);
/* One thread at a time. Waits for the next tag, at most `timeout` seconds (negative: no limit; else
 * DISTRUN_TIMEOUT). It makes progress on the operations itself, so that a completion needs no change of threads.
 * DISTRUN_SHUT_DOWN: distrun_watch_end() was called and every tag has been taken. */
DISTRUN_API int32_t distrun_watch_next(distrun_watch* watch, double timeout, void** tag);
/* Any thread may call this. Nothing may be added afterwards. */
DISTRUN_API void distrun_watch_end(distrun_watch* watch);
/* Frees the watch. Call it before its session is closed. No other thread may be inside a call. Tags not taken are
 * lost. */
DISTRUN_API void distrun_watch_close(distrun_watch* watch);

/* The job's store: keys and values that all ranks share, over the authenticated connections to the launcher. It is
 * for a few small values, for instance for ranks that find each other. Keys are texts below 1 KiB, values have at
 * most 1 MiB, all together at most 256 MiB. A key stays until a swap removes it or the session ends.
 * DISTRUN_UNSUPPORTED in a job of one rank.
 *
 * `get` waits until the key exists, at most `timeout` seconds (negative: no limit), and ends early if a rank is
 * gone. `add` creates a missing key with the value 0 first; the value of the key is the sum in decimal digits.
 * `swap` sets the key to `wanted` (NULL: removes it) if its value is `expected` (NULL: it does not exist). `get` and
 * `swap` write at most `capacity` bytes of the value and store its size. For swap this is the earlier value, and the
 * size is -1 if there was none. `count` returns how many keys begin with `prefix`. */
DISTRUN_API int32_t distrun_store_set(distrun_session* session, const char* key, const void* value, uint64_t size);
DISTRUN_API int32_t distrun_store_get(distrun_session* session, const char* key, double timeout, void* buffer,
                                      uint64_t capacity, int64_t* size);
DISTRUN_API int32_t distrun_store_add(distrun_session* session, const char* key, int64_t delta, int64_t* sum);
DISTRUN_API int32_t distrun_store_swap(distrun_session* session, const char* key, const void* expected,
                                       uint64_t expected_size, const void* wanted, uint64_t wanted_size, void* buffer,
                                       uint64_t capacity, int64_t* size);
DISTRUN_API int32_t distrun_store_count(distrun_session* session, const char* prefix, int64_t* count);

/* Process sets. Collective over all ranks of the job. Ranks are world ranks. The global set is 0 and always exists.
 * Adding and removing has no time limit, so ranks may call minutes apart. After stall_warning_time a warning names
 * the missing ranks, and stall_shutdown_time, if set, ends the job. */
DISTRUN_API int32_t distrun_process_set_add(distrun_session* session, const int32_t* ranks, uint64_t count,
                                            int32_t* process_set);
/* The same, but only the members call it. The other ranks do not take part and do not learn of the set. It may have
 * the same ranks as another set. Only its members call distrun_process_set_remove for it. Ranks must make the calls
 * that they share, of both kinds, in the same order. If they do not, each of them gets DISTRUN_MISMATCH. */
DISTRUN_API int32_t distrun_process_set_add_by_members(distrun_session* session, const int32_t* ranks, uint64_t count,
                                                       int32_t* process_set);
DISTRUN_API int32_t distrun_process_set_remove(distrun_session* session, int32_t process_set);
/* Like add_by_members, but independent of the order of this rank's other calls. No such call waits for another, so
 * ranks that share several may make them in any order. Waits at most `timeout` seconds (negative: no limit). After
 * DISTRUN_TIMEOUT the call is still in effect. This rank's next call for the same ranks, from any thread, continues
 * it and does not start another one: call again until it returns DISTRUN_OK. A call that is never repeated stays in
 * flight until the other members have made it too, and counts as an operation in distrun_shutdown. If several sets
 * have the same ranks, the order in which each member adds them identifies them. */
DISTRUN_API int32_t distrun_process_set_add_apart(distrun_session* session, const int32_t* ranks, uint64_t count,
                                                  double timeout, int32_t* process_set);
/* Use it instead of remove. This rank submits nothing more to the set, and does not wait for other ranks. The set is
 * removed when all ranks that would remove it have called this, at any time. */
DISTRUN_API int32_t distrun_process_set_drop(distrun_session* session, int32_t process_set);
/* Writes at most `capacity` ranks of the set in ascending order, and stores the number of members. */
DISTRUN_API int32_t distrun_process_set_ranks(distrun_session* session, int32_t process_set, int32_t* ranks,
                                              uint64_t capacity, uint64_t* count);

/* Chrome trace of all ranks in one file. Collective: every rank calls with the same path. If rank 0 cannot open it,
 * every rank gets the error. The file can be opened at any time. It is complete when stop or shutdown returns on
 * rank 0. These wait a few seconds for a disk that is stuck, then warn. */
DISTRUN_API int32_t distrun_timeline_start(distrun_session* session, const char* path);
DISTRUN_API int32_t distrun_timeline_stop(distrun_session* session);

/* For a front end in another language, so that the report of a hang shows where the program is. distrun calls the
 * describer only when ranks have waited long for each other, or when the user asks (Ctrl-\ at the launcher). It runs
 * on a separate thread, and may run even after distrun_close: it must stay callable while the process lives. It may
 * wait for a lock of the language. After one second the report says that it did not answer. The describer may call
 * only the functions below from this file. NULL: there is none. */
typedef struct distrun_view distrun_view;
typedef void (*distrun_describer)(distrun_view* view);
DISTRUN_API int32_t distrun_describe_by(distrun_session* session, distrun_describer describer);
/* The main thread is inside a wait of distrun. `limited`: the wait ends by itself at some time. */
DISTRUN_API void distrun_view_wait(distrun_view* view, int32_t limited);
/* An exception that the main thread is handling, as "ValueError: bad", and where it was raised. */
DISTRUN_API void distrun_view_exception(distrun_view* view, const char* text, const char* file, int32_t line);
/* The next frames belong to this thread, the innermost first. The main thread comes first and has the name "". */
DISTRUN_API void distrun_view_thread(distrun_view* view, const char* name);
DISTRUN_API void distrun_view_frame(distrun_view* view, const char* file, int32_t line, const char* function);

#ifdef __cplusplus
}
#endif
#endif /* DISTRUN_DISTRUN_H */
