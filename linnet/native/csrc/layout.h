// The layout of every struct of the ABI as text, made by the compiler from the same lists as the structs themselves:
//
//     linnet_norm_call 80
//      out float* 0 8
//      ...                    a line for each struct with its size, one for each field: name, kind, offset, size
//
// linnet/native/library.py compares it with the structs of Python and loads no library that differs. const is left out.
#pragma once
#include <stddef.h>

#include "linnet.h"

namespace layout {

struct Text {
  char chars[32768] = {};
  int length = 0;

  constexpr void put(const char *s) {
    while (*s) chars[length++] = *s++;
  }
  constexpr void put(size_t n) {
    char digits[24] = {};
    int count = 0;
    do digits[count++] = (char)('0' + n % 10);
    while (n /= 10);
    while (count) chars[length++] = digits[--count];
  }
};

template <class T>
struct Kind;

#define LINNET_KIND(type, text) \
  template <>                   \
  struct Kind<type> {           \
    static constexpr void put(Text &to) { to.put(text); } \
  };
LINNET_KIND(void, "void")
LINNET_KIND(float, "float")
LINNET_KIND(double, "double")
LINNET_KIND(uint8_t, "uint8")
LINNET_KIND(int32_t, "int32")
LINNET_KIND(int64_t, "int64")
#define LINNET_PART_KIND(name) LINNET_KIND(linnet_##name, "linnet_" #name)
LINNET_PARTS(LINNET_PART_KIND)

template <class T>
struct Kind<const T> : Kind<T> {};

template <class T>
struct Kind<T *> {
  static constexpr void put(Text &to) {
    Kind<T>::put(to);
    to.put("*");
  }
};

template <class T>
constexpr void put_field(Text &to, const char *name, size_t offset) {
  to.put(" ");
  to.put(name);
  to.put(" ");
  Kind<T>::put(to);
  to.put(" ");
  to.put(offset);
  to.put(" ");
  to.put(sizeof(T));
  to.put("\n");
}

constexpr void put_struct(Text &to, const char *name, size_t size) {
  to.put(name);
  to.put(" ");
  to.put(size);
  to.put("\n");
}

constexpr Text describe() {
  Text to;
#define LINNET_FIELD_TEXT(type, name) put_field<type>(to, #name, offsetof(Here, name));
#define LINNET_STRUCT_TEXT(type, fields)   \
  {                                        \
    using Here = type;                     \
    put_struct(to, #type, sizeof(type));   \
    fields(LINNET_FIELD_TEXT)              \
  }
#define LINNET_PART_TEXT(name) LINNET_STRUCT_TEXT(linnet_##name, LINNET_FIELDS_##name)
#define LINNET_CALL_TEXT(name) LINNET_STRUCT_TEXT(linnet_##name##_call, LINNET_FIELDS_##name)
  LINNET_PARTS(LINNET_PART_TEXT)
  LINNET_CALLS(LINNET_CALL_TEXT)
  LINNET_PLAIN_CALLS(LINNET_CALL_TEXT)
  return to;
}

constexpr Text text = describe();

}  // namespace layout
