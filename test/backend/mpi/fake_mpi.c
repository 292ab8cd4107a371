/* A fake MPI with the binary interface of Open MPI. This process is task 0. The test sets the thread level that it
 * provides. Its operations do nothing, except messages that a test forwards. */
#pragma GCC visibility push(default)

int fake_mpi_level = 3;
int fake_mpi_inits = 0;
int fake_mpi_finalizes = 0;
int fake_mpi_tasks = 1;
int fake_mpi_communicators = 0;
int fake_mpi_gpu_aware = 0;

int (*fake_mpi_isend)(const void* data, int count, void* type, int to, int tag, void* comm, void** request) = 0;
int (*fake_mpi_irecv)(void* data, int count, void* type, int from, int tag, void* comm, void** request) = 0;
int (*fake_mpi_ibarrier)(void* comm, void** request) = 0;
void (*fake_mpi_at_finalize)(void) = 0;
int (*fake_mpi_test)(void** request, int* done, void* status) = 0;

int MPI_Initialized(int* flag) {
  *flag = fake_mpi_inits > 0;
  return 0;
}
int MPI_Finalized(int* flag) {
  *flag = fake_mpi_finalizes > 0;
  return 0;
}
int MPI_Init_thread(int* argc, char*** argv, int required, int* provided) {
  (void)argc;
  (void)argv;
  *provided = required < fake_mpi_level ? required : fake_mpi_level;
  ++fake_mpi_inits;
  return 0;
}
int MPI_Query_thread(int* provided) {
  *provided = fake_mpi_level;
  return 0;
}
int MPI_Finalize(void) {
  if (fake_mpi_at_finalize != 0) fake_mpi_at_finalize();
  ++fake_mpi_finalizes;
  return 0;
}
int MPI_Comm_rank(void* comm, int* rank) {
  (void)comm;
  *rank = 0;
  return 0;
}
int MPI_Comm_size(void* comm, int* size) {
  (void)comm;
  *size = fake_mpi_tasks;
  return 0;
}
int MPI_Comm_create_group(void* comm, void* group, int tag, void** made) {
  (void)comm;
  (void)group;
  (void)tag;
  *made = &fake_mpi_communicators;
  ++fake_mpi_communicators;
  return 0;
}
int MPI_Get_library_version(char* text, int* length) {
  const char version[] = "Open MPI v4.1.4, of a test";
  for (*length = 0; version[*length] != 0; ++*length) text[*length] = version[*length];
  text[*length] = 0;
  return 0;
}
int MPIX_Query_cuda_support(void) { return fake_mpi_gpu_aware; }
int MPI_Isend(const void* data, int count, void* type, int to, int tag, void* comm, void** request) {
  return fake_mpi_isend == 0 ? 0 : fake_mpi_isend(data, count, type, to, tag, comm, request);
}
int MPI_Irecv(void* data, int count, void* type, int from, int tag, void* comm, void** request) {
  return fake_mpi_irecv == 0 ? 0 : fake_mpi_irecv(data, count, type, from, tag, comm, request);
}
int MPI_Ibarrier(void* comm, void** request) { return fake_mpi_ibarrier == 0 ? 0 : fake_mpi_ibarrier(comm, request); }
int MPI_Test(void** request, int* done, void* status) {
  return fake_mpi_test == 0 ? 0 : fake_mpi_test(request, done, status);
}

#define FUNCTION(name) \
  int name(void) { return 0; }
FUNCTION(MPI_Error_string)
FUNCTION(MPI_Comm_group)
FUNCTION(MPI_Group_incl)
FUNCTION(MPI_Group_free)
FUNCTION(MPI_Comm_set_errhandler)
FUNCTION(MPI_Comm_free)
FUNCTION(MPI_Op_create)
FUNCTION(MPI_Iallreduce)
FUNCTION(MPI_Ireduce)
FUNCTION(MPI_Ibcast)
FUNCTION(MPI_Iallgatherv)
FUNCTION(MPI_Ireduce_scatter)

int ompi_mpi_comm_world, ompi_mpi_errors_return, ompi_request_null;
int ompi_mpi_op_sum, ompi_mpi_op_prod, ompi_mpi_op_min, ompi_mpi_op_max;
int ompi_mpi_uint8_t, ompi_mpi_int8_t, ompi_mpi_int16_t, ompi_mpi_int32_t, ompi_mpi_int64_t, ompi_mpi_uint16_t;
int ompi_mpi_uint32_t, ompi_mpi_uint64_t, ompi_mpi_float, ompi_mpi_double, ompi_mpi_c_float_complex;
int ompi_mpi_c_double_complex;
