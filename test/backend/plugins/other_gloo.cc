// A library that exports a symbol of Gloo, as libtorch_cpu.so does.
namespace gloo::transport::tcp {

struct attr;
__attribute__((visibility("default"))) void CreateDevice(const attr&);
void CreateDevice(const attr&) {}

}  // namespace gloo::transport::tcp
