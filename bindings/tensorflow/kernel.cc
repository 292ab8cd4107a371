#include "bindings/tensorflow/kernel.h"

#include <charconv>
#include <exception>
#include <memory>

#include "bindings/bridge/core.h"
#include "bindings/bridge/failures.h"

namespace distrun::tensorflow {
namespace {

// TensorFlow's error codes
constexpr int kInvalidArgument = 3;
constexpr int kResourceExhausted = 8;

class Attributes {
 public:
  explicit Attributes(TF_OpKernelConstruction* construction) : construction_(construction) {}

  std::string text(const char* name) {
    std::int32_t list = 0;
    std::int32_t size = 0;
    tf.TF_OpKernelConstruction_GetAttrSize(construction_, name, &list, &size, status_.get());
    if (!status_.ok() || size <= 0) return "";
    std::string value(static_cast<std::size_t>(size), '\0');
    tf.TF_OpKernelConstruction_GetAttrString(construction_, name, value.data(), value.size(), status_.get());
    return value;
  }

  std::int32_t integer(const char* name) {
    std::int64_t value = 0;
    if (status_.ok()) tf.TF_OpKernelConstruction_GetAttrInt64(construction_, name, &value, status_.get());
    return static_cast<std::int32_t>(value);
  }

  // TensorFlow's attributes have no double, and a float is not precise enough for 1 / 3.
  double number(const char* name) {
    const std::string value = text(name);
    double found = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), found);
    if (status_.ok() && (error != std::errc() || end != value.data() + value.size())) {
      tf.TF_SetStatus(status_.get(), kInvalidArgument, (std::string(name) + " is not a number: " + value).c_str());
    }
    return found;
  }

  bool refused() {
    if (status_.ok()) return false;
    tf.TF_OpKernelConstruction_Failure(construction_, status_.get());
    return true;
  }

 private:
  TF_OpKernelConstruction* construction_;
  StatusScope status_;
};

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> found;
  for (std::size_t start = 0; start < text.size();) {
    std::size_t end = text.find('\n', start);
    if (end == std::string::npos) end = text.size();
    found.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  return found;
}

Kernel* read_kernel(distrun_kind kind, TF_OpKernelConstruction* construction) {
  auto made = std::make_unique<Kernel>();
  Attributes attributes(construction);
  made->kind = kind;
  made->names = lines(attributes.text("tensor_name"));
  made->process_set = attributes.integer("process_set");
  made->eager = attributes.integer("eager") != 0;
  made->grouped = attributes.integer("grouped") != 0;
  if (operation_of(kind).reduces) {
    made->reduce = attributes.integer("reduce");
    made->prescale = attributes.number("prescale");
    made->postscale = attributes.number("postscale");
  }
  if (operation_of(kind).has_root) made->root = attributes.integer("root");
  return attributes.refused() ? nullptr : made.release();
}

}  // namespace

const Operation& operation_of(distrun_kind kind) {
  static constexpr Operation kOperations[] = {
#define DISTRUN_OPERATION(id, number, c_name, name, output, reduces, fuses, has_root, has_splits, lost_by_join) \
  {#name, Output::output, reduces, has_root},
#include "runtime/base/operations.def"
#undef DISTRUN_OPERATION
  };
  return kOperations[kind];
}

Kernel* make_kernel(distrun_kind kind, TF_OpKernelConstruction* construction) noexcept {
  try {
    return read_kernel(kind, construction);
  } catch (const std::exception&) {
    const StatusScope status;
    tf.TF_SetStatus(status.get(), kResourceExhausted, bridge::failure_of_exception().message);
    tf.TF_OpKernelConstruction_Failure(construction, status.get());
    return nullptr;
  }
}

std::vector<std::string> Kernel::tensor_names(std::size_t count) const {
  const std::string prefix = std::string(operation_of(kind).name) + ".";
  std::vector<std::string> result;
  if (names.size() == count && count > 1) {
    for (const std::string& name : names) result.push_back(prefix + name);
    return result;
  }
  const std::string base =
      prefix + (names.empty() ? "tensorflow." + bridge::attachment().next_number(operation_of(kind).name, process_set)
                              : names.front());
  if (count <= 1) return {base};
  for (std::size_t i = 0; i < count; ++i) {
    result.push_back(base + "_" + std::to_string(i + 1) + "of" + std::to_string(count));
  }
  return result;
}

}  // namespace distrun::tensorflow
