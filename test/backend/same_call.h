// Checks that our declaration of a function and the one in another project's header make the same call.
#pragma once

#include <type_traits>

namespace distrun::test {

// Whether two types are passed in the same way: both pointers or neither, equal size, both structs or neither.
template <class Ours, class Theirs>
constexpr bool kAlike = std::is_pointer_v<Ours> == std::is_pointer_v<Theirs> &&
                        sizeof(Ours) == sizeof(Theirs) && std::is_class_v<Ours> == std::is_class_v<Theirs>;

template <class Ours, class Theirs>
struct SameCall : std::false_type {};
template <class R, class... A, class S, class... B>
requires(sizeof...(A) == sizeof...(B)) struct SameCall<R (*)(A...), S (*)(B...)>
    : std::bool_constant<kAlike<R, S> && (kAlike<A, B> && ...)> {
};

}  // namespace distrun::test
