// Products of small matrices, one sequence in each lane: E x E vectors, E a handful.
//
//     c = a b,  c += a b,  c += x yᵀ + a b      and the part on and right of the diagonal where the result is symmetric
//
// A tile of R rows and N columns is summed in registers; R + N operands are read for R N multiplications. For E = 11,
// the paper's 10 features, sizes and strides are known to the compiler (N = 11); any other E is cut into widths 11, 8,
// 4 and 1 (N = 0).
#pragma once
#include "draw.h"

namespace {

template <class T>
struct Lanes;
template <>
struct Lanes<float> {
  typedef vf type;
};
template <>
struct Lanes<double> {
  typedef double type __attribute__((vector_size(VL * 4), may_alias));
};

constexpr int ROWS = VL == 16 ? 2 : 1;  // of a tile: 2 x 11 sums fit the 32 registers of AVX-512, 1 x 11 all others

// A matrix as it lies, or transposed: vectors of sequences, or numbers that all of them share. Strides in elements.
template <class X>
struct Matrix {
  const X *p;
  int64_t row, column;
};
template <class X>
INLINE Matrix<X> plain(const X *p, int64_t E) {
  return {p, E, 1};
}
template <class X>
INLINE Matrix<X> turned(const X *p, int64_t E) {
  return {p, 1, E};
}

// Loads x once, into a register: without this the compiler reads an operand from memory again for every row of a tile.
template <class X>
INLINE X held(X x) {
#if defined(__x86_64__)
  if (sizeof(X) > 8) asm("" : "+v"(x));
#endif
  return x;
}

template <class V>
INLINE const V *rows(const V *p, int64_t i, int64_t E) {
  return p ? p + i * E : nullptr;
}

// R x N sums at c[i..,j..], kept in registers.
template <int R, int N, class V>
struct Tile {
  V sum[R][N];

  ALWAYS void zero() {
    for (int r = 0; r < R; ++r)
      UNROLL(11) for (int j = 0; j < N; ++j) sum[r][j] = V{};
  }
  ALWAYS void load(const V *c, int64_t E) {
    for (int r = 0; r < R; ++r)
      UNROLL(11) for (int j = 0; j < N; ++j) sum[r][j] = c[r * E + j];
  }
  ALWAYS void store(V *c, int64_t E) const {
    for (int r = 0; r < R; ++r)
      UNROLL(11) for (int j = 0; j < N; ++j) c[r * E + j] = sum[r][j];
  }
  ALWAYS void increase(V *c, int64_t E) const {
    for (int r = 0; r < R; ++r)
      UNROLL(11) for (int j = 0; j < N; ++j) c[r * E + j] += sum[r][j];
  }
  // += x yᵀ
  ALWAYS void outer(const V *x, const V *y) {
    for (int r = 0; r < R; ++r)
      UNROLL(11) for (int j = 0; j < N; ++j) sum[r][j] += x[r] * y[j];
  }
  // += rows i.. of a times columns j.. of b. `soon` (may be null): 2 E vectors that the next product needs, asked for
  // on the way, because the matrices of a layer are more than the first-level cache holds.
  template <class A, class B>
  ALWAYS void add(Matrix<A> a, int64_t i, Matrix<B> b, int64_t j, int64_t E, const V *soon = nullptr) {
    const A *left = a.p + i * a.row;
    const B *right = b.p + j * b.column;
    for (int64_t k = 0; k < E; ++k, left += a.column, right += b.row) {
      if (soon) __builtin_prefetch(soon + 2 * k), __builtin_prefetch(soon + 2 * k + 1);
      A x[R];
      for (int r = 0; r < R; ++r) x[r] = left[r * a.row];
      UNROLL(11) for (int n = 0; n < N; ++n) {
        const B y = R > 1 ? held(right[n * b.column]) : right[n * b.column];
        for (int r = 0; r < R; ++r) sum[r][n] += x[r] * y;
      }
    }
  }
};

// Calls body(tile, i, j) for tiles that cover rows i.. and the columns from j on.
template <int R, class V, class Body>
INLINE void columns(int64_t i, int64_t j, int64_t E, Body body) {
  for (; j + 11 <= E; j += 11) body(Tile<R, 11, V>(), i, j);
  for (; j + 8 <= E; j += 8) body(Tile<R, 8, V>(), i, j);
  for (; j + 4 <= E; j += 4) body(Tile<R, 4, V>(), i, j);
  for (; j < E; ++j) body(Tile<R, 1, V>(), i, j);
}

// Tiles that cover the matrix.
template <int N, class V, class Body>
INLINE void whole(int64_t E, Body body) {
  int64_t i = 0;
  for (; i + ROWS <= E; i += ROWS) {
    if constexpr (N > 0)
      body(Tile<ROWS, N, V>(), i, (int64_t)0);
    else
      columns<ROWS, V>(i, 0, E, body);
  }
  for (; i < E; ++i) {
    if constexpr (N > 0)
      body(Tile<1, N, V>(), i, (int64_t)0);
    else
      columns<1, V>(i, 0, E, body);
  }
}

// Tiles that cover the diagonal and what is right of it; for N = 11 with 9 sums or more at a time, or they wait for one
// another.
template <int N, class V, class Body>
INLINE void upper(int64_t E, Body body) {
  if constexpr (N == 11) {
    if constexpr (ROWS == 2) {
      body(Tile<2, 11, V>(), 0, 0), body(Tile<2, 9, V>(), 2, 2), body(Tile<2, 7, V>(), 4, 4);
    } else {
      body(Tile<1, 11, V>(), 0, 0), body(Tile<1, 10, V>(), 1, 1), body(Tile<1, 9, V>(), 2, 2);
      body(Tile<1, 8, V>(), 3, 3), body(Tile<1, 7, V>(), 4, 4), body(Tile<1, 6, V>(), 5, 5);
    }
    body(Tile<2, 5, V>(), 6, 6), body(Tile<3, 3, V>(), 8, 8);
  } else {
    int64_t i = 0;
    for (; i + ROWS <= E; i += ROWS) columns<ROWS, V>(i, i, E, body);
    for (; i < E; ++i) columns<1, V>(i, i, E, body);
  }
}

template <int N, class V, class A, class B>
INLINE void product_inline(V *c, Matrix<A> a, Matrix<B> b, int64_t E, bool add, const V *soon) {
  whole<N, V>(E, [=](auto tile, int64_t i, int64_t j) {
    tile.zero();
    tile.add(a, i, b, j, E, rows(soon, i, E));
    add ? tile.increase(c + i * E + j, E) : tile.store(c + i * E + j, E);
  });
}
template <class V, class A, class B>
NOINLINE void product_any(V *c, Matrix<A> a, Matrix<B> b, int64_t E, bool add, const V *soon) {
  product_inline<0>(c, a, b, E, add, soon);
}

// c (+)= a b; `soon` [E,E]: see Tile::add.
template <int N, class V, class A, class B>
INLINE void product(V *c, Matrix<A> a, Matrix<B> b, int64_t E, bool add = false, const V *soon = nullptr) {
  if constexpr (N > 0)
    product_inline<N>(c, a, b, E, add, soon);
  else
    product_any(c, a, b, E, add, soon);
}

// c = x yᵀ + a b
template <int N, class V>
INLINE void product_outer(V *c, const V *x, const V *y, Matrix<V> a, Matrix<V> b, int64_t E) {
  whole<N, V>(E, [=](auto tile, int64_t i, int64_t j) {
    tile.zero();
    tile.outer(x + i, y + j);
    tile.add(a, i, b, j, E);
    tile.store(c + i * E + j, E);
  });
}

// c = a b where that is symmetric, without what is left of the diagonal: `mirror` fills it in.
template <int N, class V>
INLINE void upper_product(V *c, Matrix<V> a, Matrix<V> b, int64_t E, const V *soon = nullptr) {
  upper<N, V>(E, [=](auto tile, int64_t i, int64_t j) {
    tile.zero();
    tile.add(a, i, b, j, E, rows(soon, i, E));
    tile.store(c + i * E + j, E);
  });
}

// c += a b + (a b)ᵀ, in the same way.
template <int N, class V, class B>
INLINE void upper_sum(V *c, Matrix<V> a, Matrix<B> b, int64_t E, const V *soon, const V *after) {
  const Matrix<B> left = {b.p, b.column, b.row};
  const Matrix<V> right = {a.p, a.column, a.row};
  upper<N, V>(E, [=](auto tile, int64_t i, int64_t j) {
    tile.load(c + i * E + j, E);
    tile.add(a, i, b, j, E, rows(soon, i, E));
    tile.add(left, i, right, j, E, rows(after, i, E));
    tile.store(c + i * E + j, E);
  });
}

template <class V>
INLINE void mirror(V *c, int64_t E) {
  for (int64_t i = 1; i < E; ++i)
    for (int64_t j = 0; j < i; ++j) c[i * E + j] = c[j * E + i];
}

// c [E] (+)= the row x times b
template <int N, class V, class A, class B>
INLINE void row_product(V *c, const A *x, Matrix<B> b, int64_t E, bool add = false) {
  const Matrix<A> a = {x, 0, 1};
  const auto body = [=](auto tile, int64_t i, int64_t j) {
    add ? tile.load(c + j, E) : tile.zero();
    tile.add(a, i, b, j, E);
    tile.store(c + j, E);
  };
  if constexpr (N > 0)
    body(Tile<1, N, V>(), 0, 0);
  else
    columns<1, V>(0, 0, E, body);
}

// The sum of the lanes.
#if defined(__AVX512F__)
INLINE float lane_sum(vf x) { return _mm512_reduce_add_ps((__m512)x); }
INLINE double lane_sum(Lanes<double>::type x) { return _mm512_reduce_add_pd((__m512d)x); }
#else
template <class V>
INLINE auto lane_sum(V x) {
  auto out = x[0];
  for (size_t i = 1; i < sizeof(V) / sizeof(out); ++i) out += x[i];
  return out;
}
#endif

}  // namespace
