// In-context regression transformers: loss and gradient of a batch, in Gram form, one sequence per lane.
//
//     H = I + sum_k P_k S Q_k,  S' = H S Hᵀ            of every layer; E = d + 1, S [E,E] = sum_i e_i e_iᵀ
//     v_L = e_y,  v_l = H_lᵀ v_(l+1),  w = -v_0[:d]     the answer to a query x is <w, x>
//     loss = 1/2 |w - target|²   or   1/2 (<w, x> - y)²
// Backward, with U = dS' H:  dG = v_(l+1) dv_lᵀ + 2 U S,  dS = Hᵀ U + sym(Pᵀ dG Qᵀ),  dP = dG (S Q)ᵀ,  dQ = S Pᵀ dG
// which is 10 products of E³ for a layer of FULL and 4 for DIAG, whose G is omega times S entry by entry. The last layer
// touches only one row of H. linnet/icl/gradient.py has the same in torch, which is the reference.
#pragma once
#ifdef _OPENMP
#include <omp.h>
#endif
#include <math.h>
#include <stdlib.h>

#include "draw.h"
#include "linnet.h"

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

constexpr int ROWS = VL == 16 ? 2 : 1;  // of a tile: 2 x 11 sums fit the 32 registers of AVX-512, 1 x 11 the 16 of others

// c[r,j] (+)= sum_k a[r,k] b[k,j], r < R, j < N. a and b are vectors or numbers; strides in elements.
template <int R, int N, class V, class A, class B>
INLINE void tile(V *c, int64_t cr, const A *a, int64_t ar, int64_t ak, const B *b, int64_t bk, int64_t bj, int64_t K,
                 bool add) {
  V sum[R][N];
  for (int r = 0; r < R; ++r)
    UNROLL(11) for (int j = 0; j < N; ++j) sum[r][j] = V{};
  for (int64_t k = 0; k < K; ++k, a += ak, b += bk) {
    A x[R];
    for (int r = 0; r < R; ++r) x[r] = a[r * ar];
    UNROLL(11) for (int j = 0; j < N; ++j) {
      const B y = b[j * bj];
      for (int r = 0; r < R; ++r) sum[r][j] += x[r] * y;
    }
  }
  for (int r = 0; r < R; ++r)
    UNROLL(11) for (int j = 0; j < N; ++j) c[r * cr + j] = add ? c[r * cr + j] + sum[r][j] : sum[r][j];
}

template <int R, class V, class A, class B>
NOINLINE void tiles(V *c, int64_t cr, const A *a, int64_t ar, int64_t ak, const B *b, int64_t bk, int64_t bj, int64_t K,
                    int64_t columns, bool add) {
  while (columns > 0) {
    int64_t done = 1;
    if (columns >= 11)
      tile<R, 11>(c, cr, a, ar, ak, b, bk, bj, K, add), done = 11;
    else if (columns >= 8)
      tile<R, 8>(c, cr, a, ar, ak, b, bk, bj, K, add), done = 8;
    else if (columns >= 4)
      tile<R, 4>(c, cr, a, ar, ak, b, bk, bj, K, add), done = 4;
    else
      tile<R, 1>(c, cr, a, ar, ak, b, bk, bj, K, add);
    c += done, b += done * bj, columns -= done;
  }
}

// A matrix of E x E elements as it lies, or transposed.
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

// c (+)= a b
template <class V, class A, class B>
INLINE void product(V *c, Matrix<A> a, Matrix<B> b, int64_t E, bool add) {
  int64_t i = 0;
  for (; i + ROWS <= E; i += ROWS)
    tiles<ROWS>(c + i * E, E, a.p + i * a.row, a.row, a.column, b.p, b.row, b.column, E, E, add);
  for (; i < E; ++i) tiles<1>(c + i * E, E, a.p + i * a.row, a.row, a.column, b.p, b.row, b.column, E, E, add);
}

// c = a b where that is symmetric: entries right of the diagonal, in widths the tiles have, then their mirror.
template <class V>
INLINE void symmetric_product(V *c, Matrix<V> a, Matrix<V> b, int64_t E) {
  for (int64_t i = 0; i < E; i += ROWS) {
    const int64_t needed = E - i, width = E <= 11 && needed <= 4 && E >= 4 ? 4 : E == 11 && needed <= 8 ? 8 : needed;
    const int64_t j = E - width;
    if (i + ROWS <= E)
      tiles<ROWS>(c + i * E + j, E, a.p + i * a.row, a.row, a.column, b.p + j * b.column, b.row, b.column, E, width, 0);
    else
      tiles<1>(c + i * E + j, E, a.p + i * a.row, a.row, a.column, b.p + j * b.column, b.row, b.column, E, width, 0);
  }
  for (int64_t i = 1; i < E; ++i)
    for (int64_t j = 0; j < i; ++j) c[i * E + j] = c[j * E + i];
}

// Everything one thread needs for the lanes it works on.
template <class T>
struct Lab {
  typedef typename Lanes<T>::type V;
  static constexpr int W = VL * 4 / sizeof(T);
  const linnet_icl *c;
  int64_t E, d, L, K, EE;
  const T *p, *q;                             // FULL [L,K,E,E]; diagonal: omega [L,2,2] in p
  V *s, *x, *h, *v, *dv, *row;                // S [L,E,E], S Q [L,K,E,E], H [L,E,E], v and dv [L+1,E], last rows [K,E]
  V *a, *b, *ds, *target, *query, *work;      // scratch [E,E] x 3, [d], [E], the rest
  V *dp, *dq;                                 // sums over the sequences: like p and q
  V loss, bad;

  static int64_t vectors(const linnet_icl *c) {
    const int64_t E = c->E, EE = E * E, K = c->K;
    return c->L * EE * (2 + K) + 2 * (c->L + 1) * E + K * E + 3 * EE + 2 * E + (E + EE + 8);
  }
  static int64_t sums(const linnet_icl *c) { return c->diagonal ? c->L * 4 : 2 * c->L * c->K * c->E * c->E; }

  void set(const linnet_icl *call, const T *p_, const T *q_, V *memory) {
    c = call, E = c->E, d = E - 1, L = c->L, K = c->K, EE = E * E, p = p_, q = q_;
    s = memory, x = s + L * EE, h = x + L * K * EE, v = h + L * EE, dv = v + (L + 1) * E, row = dv + (L + 1) * E;
    a = row + K * E, b = a + EE, ds = b + EE, target = ds + EE, query = target + E, work = query + E;
  }

  const T *P(int64_t l, int64_t k) const { return p + (l * K + k) * EE; }
  const T *Q(int64_t l, int64_t k) const { return q + (l * K + k) * EE; }

  // omega of entry (i, j) of layer l: its x or y rows and columns.
  T omega(int64_t l, int64_t i, int64_t j) const { return p[l * 4 + (i == d) * 2 + (j == d)]; }

  void forward() {
    for (int64_t l = 0; l + 1 < L; ++l) {
      const V *S = s + l * EE;
      V *H = h + l * EE;
      if (c->diagonal) {
        for (int64_t i = 0; i < E; ++i)
          for (int64_t j = 0; j < E; ++j) H[i * E + j] = S[i * E + j] * omega(l, i, j);
      } else {
        for (int64_t k = 0; k < K; ++k) {
          V *X = x + (l * K + k) * EE;
          product(X, plain(S, E), plain(Q(l, k), E), E, false);
          product(H, plain(P(l, k), E), plain((const V *)X, E), E, k > 0);
        }
      }
      for (int64_t i = 0; i < E; ++i) H[i * E + i] += (T)1;
      product(a, plain((const V *)H, E), plain(S, E), E, false);
      symmetric_product(s + (l + 1) * EE, plain((const V *)a, E), turned((const V *)H, E), E);
    }
    read_out();
  }

  void read_out() {
    V *top = v + (L - 1) * E;
    const V *S = s + (L - 1) * EE;
    for (int64_t j = 0; j < E; ++j) v[L * E + j] = top[j] = V{} + (T)(j == d);
    if (c->diagonal) {
      for (int64_t j = 0; j < E; ++j) top[j] += S[d * E + j] * omega(L - 1, d, j);
    } else {
      for (int64_t k = 0; k < K; ++k) {
        V *t = row + k * E;
        tiles<1>(t, E, P(L - 1, k) + d * E, E, (int64_t)1, S, E, (int64_t)1, E, E, false);
        tiles<1>(top, E, (const V *)t, E, (int64_t)1, Q(L - 1, k), E, (int64_t)1, E, E, true);
      }
    }
    for (int64_t l = L - 1; l-- > 0;)
      tiles<1>(v + l * E, E, (const V *)v + (l + 1) * E, E, (int64_t)1, (const V *)h + l * EE, E, (int64_t)1, E, E,
               false);
  }

  // The loss of every lane, and its gradient with respect to v_0 into dv_0: of log(loss) where it is over `temper`,
  // so that a sequence on which the polynomial explodes is heard and does not drown the others.
  V error(T weight) {
    V total = V{};
    if (c->target == LINNET_QUERY) {
      V miss = -query[d];
      for (int64_t i = 0; i < d; ++i) miss -= v[i] * query[i];
      for (int64_t i = 0; i < d; ++i) dv[i] = -miss * query[i] * weight;
      total = miss * miss * (T)0.5;
    } else {
      for (int64_t i = 0; i < d; ++i) {
        const V miss = v[i] + target[i];
        dv[i] = miss * weight;
        total += miss * miss * (T)0.5;
      }
    }
    dv[d] = V{};
    if (c->temper > 0) {
      V scale;
      for (int i = 0; i < W; ++i) scale[i] = total[i] > (T)c->temper ? (T)c->temper / total[i] : (T)1;
      for (int64_t i = 0; i < d; ++i) dv[i] *= scale;
    }
    return total;
  }

  void backward() {
    for (int64_t l = 0; l + 1 < L; ++l)
      tiles<1>(dv + (l + 1) * E, E, (const V *)dv + l * E, E, (int64_t)1, (const V *)h + l * EE, (int64_t)1, E, E, E,
               false);
    last_layer();
    for (int64_t l = L - 1; l-- > 0;) layer(l);
  }

  void last_layer() {
    const int64_t l = L - 1;
    const V *S = s + l * EE, *dh = dv + l * E;
    for (int64_t i = 0; i < EE; ++i) ds[i] = V{};
    if (c->diagonal) {
      for (int64_t j = 0; j < E; ++j) {
        dp[l * 4 + 2 + (j == d)] += dh[j] * S[d * E + j];
        const V half = dh[j] * ((T)0.5 * omega(l, d, j));
        ds[d * E + j] += half, ds[j * E + d] += half;
      }
      return;
    }
    for (int64_t k = 0; k < K; ++k) {
      const T *Pd = P(l, k) + d * E;
      const V *t = row + k * E;
      V *z = work;
      tiles<1>(z, E, dh, E, (int64_t)1, Q(l, k), (int64_t)1, E, E, E, false);
      tiles<1>(dp + (l * K + k) * EE + d * E, E, (const V *)z, E, (int64_t)1, S, E, (int64_t)1, E, E, true);
      V *out = dq + (l * K + k) * EE;
      for (int64_t i = 0; i < E; ++i)
        for (int64_t j = 0; j < E; ++j) {
          out[i * E + j] += t[i] * dh[j];
          ds[i * E + j] += (z[j] * Pd[i] + z[i] * Pd[j]) * (T)0.5;
        }
    }
  }

  void layer(int64_t l) {
    const V *S = s + l * EE, *H = h + l * EE, *up = v + (l + 1) * E, *down = dv + l * E;
    product(a, plain((const V *)ds, E), plain(H, E), E, false);  // U
    for (int64_t i = 0; i < E; ++i)
      for (int64_t j = 0; j < E; ++j) b[i * E + j] = up[i] * down[j] * (T)0.5;
    product(b, plain((const V *)a, E), plain(S, E), E, true);  // dG / 2
    if (l > 0) symmetric_product(ds, turned(H, E), plain((const V *)a, E), E);
    c->diagonal ? diagonal_gradient(l, S) : full_gradient(l, S);
  }

  void diagonal_gradient(int64_t l, const V *S) {
    V sum[4] = {};
    for (int64_t i = 0; i < E; ++i)
      for (int64_t j = 0; j < E; ++j) sum[(i == d) * 2 + (j == d)] += b[i * E + j] * S[i * E + j];
    for (int i = 0; i < 4; ++i) dp[l * 4 + i] += sum[i] * (T)2;
    if (l == 0) return;
    for (int64_t i = 0; i < E; ++i)
      for (int64_t j = 0; j < E; ++j) ds[i * E + j] += b[i * E + j] * omega(l, i, j) + b[j * E + i] * omega(l, j, i);
  }

  void full_gradient(int64_t l, const V *S) {
    for (int64_t i = 0; i < EE; ++i) b[i] *= (T)2;
    for (int64_t k = 0; k < K; ++k) {
      product(dp + (l * K + k) * EE, plain((const V *)b, E), turned((const V *)x + (l * K + k) * EE, E), E, true);
      product(a, turned(P(l, k), E), plain((const V *)b, E), E, false);
      product(dq + (l * K + k) * EE, plain(S, E), plain((const V *)a, E), E, true);
      if (l == 0) continue;
      V *z = work;
      product(z, plain((const V *)a, E), turned(Q(l, k), E), E, false);
      for (int64_t i = 0; i < E; ++i)
        for (int64_t j = 0; j < E; ++j) ds[i * E + j] += (z[i * E + j] + z[j * E + i]) * (T)0.5;
    }
  }

  // Sequences that came out as no number, or over the limit, are left out and counted: their block runs again without.
  V run_lanes(T weight) {
    forward();
    V here = error(weight);
    bool again = false;
    for (int i = 0; i < W; ++i)
      if (!(here[i] <= (T)c->limit)) {
        empty(i);
        bad[i] += 1, again = true;
      }
    if (again) forward(), here = error(weight);
    return here;
  }

  // A lane without a sequence: no loss, no gradient.
  void empty(int lane) {
    for (int64_t e = 0; e < EE; ++e) s[e][lane] = 0;
    for (int64_t e = 0; e < E; ++e) target[e][lane] = query[e][lane] = 0;
  }

  // One block: W sequences from memory.
  void stored(int64_t block) {
    const int64_t packed = E * (E + 1) / 2;
    const V *in = (const V *)c->data + block * (packed + d);
    for (int64_t i = 0, e = 0; i < E; ++i)
      for (int64_t j = i; j < E; ++j, ++e) s[i * E + j] = s[j * E + i] = in[e];
    for (int64_t i = 0; i < d; ++i) target[i] = in[packed + i], query[i] = V{};
    target[d] = query[d] = V{};
    if (c->mode == LINNET_GRADIENT) {
      loss += run_lanes(1);
      backward();
      return;
    }
    forward();
    V *out = (V *)c->out + block * d * (c->mode == LINNET_JACOBIAN ? 1 + sums(c) : 1);
    for (int64_t i = 0; i < d; ++i) out[i] = -v[i];
    if (c->mode == LINNET_JACOBIAN)
      for (int64_t i = 0; i < d; ++i) {
        for (int64_t j = 0; j < sums(c); ++j) dp[j] = V{};
        for (int64_t j = 0; j < E; ++j) dv[j] = V{} - (T)(i == j);
        backward();
        for (int64_t j = 0; j < sums(c); ++j) out[d + i * sums(c) + j] = dp[j];
      }
  }

  // One block: W fresh sequences of the stream; float only.
  void fresh(int64_t block);
};

template <>
void Lab<double>::fresh(int64_t) {}

template <>
void Lab<float>::fresh(int64_t block) {
  const bool wild = c->wild > 0 && block % c->wild == 0;
  Random random;
  random.start((uint64_t)c->seed, (uint64_t)(c->first + block * W));
  vf *w = work;
  random.normals(w, d);
  if (wild)
    for (int64_t i = 0; i < d; ++i) w[i] *= (float)c->wild_w;
  const vf sigma = draw_sigma(random, c->sigma, c->sigmas);
  draw_sums(random, s, a, w, sigma, c->n, E, wild ? (float)c->wild_x : 1.0f);
  target[d] = query[d] = vf{};
  if (c->target == LINNET_QUERY) {
    random.normals(query, d);
    for (int64_t i = 0; i < d; ++i) query[d] += query[i] * w[i];
  } else if (c->target == LINNET_WEIGHTS) {
    for (int64_t i = 0; i < d; ++i) target[i] = w[i];
  } else if (c->target == LINNET_RIDGE) {
    ridge(target, b, s, sigma * sigma, E);
  } else {
    posterior_mean(target, h, s, c->grid, c->log_weight, c->points, c->n, E);  // h is free until `forward`
  }
  const int64_t left = c->samples - block * W;
  for (int i = left < W ? (int)left : W; i < W; ++i) empty(i);
  const vf here = run_lanes(wild ? (float)c->wild_weight : 1.0f);
  if (!wild) loss += here;
  backward();
}

// Blocks are summed in GROUPS of a fixed number, whatever the threads, so the answer does not depend on them.
constexpr int64_t GROUPS = 16;

// Memory for calls of one shape, made once for all the steps of a training.
template <class T>
struct Bench {
  typedef typename Lanes<T>::type V;
  static constexpr int W = Lab<T>::W;
  const linnet_icl *c;
  int64_t blocks, groups, sums, count, each, threads;
  char *memory;
  T *p, *q;
  char *scratch, *totals;

  bool make(const linnet_icl *call) {
    c = call;
    blocks = (c->samples + W - 1) / W, groups = blocks < GROUPS ? blocks : GROUPS;
    sums = Lab<T>::sums(c), count = c->diagonal ? c->L * 4 : c->L * c->K * c->E * c->E;
    each = Lab<T>::vectors(c) * 64, threads = c->threads < groups ? c->threads : groups;
    const int64_t numbers = (2 * count * (int64_t)sizeof(T) + 63) / 64 * 64;
    memory = (char *)aligned_alloc(64, numbers + threads * each + groups * (sums + 2) * 64);
    if (!memory) return false;
    p = (T *)memory, q = p + count, scratch = memory + numbers, totals = scratch + threads * each;
    return true;
  }

  V *total(int64_t group) const { return (V *)(totals + group * (sums + 2) * 64); }

  // The parameters in the kernel's precision; of a diagonal model the omegas, sums over heads of p_row q_column.
  void read_parameters() {
    if (!c->diagonal) {
      for (int64_t i = 0; i < count; ++i) p[i] = (T)c->p[i], q[i] = (T)c->q[i];
      return;
    }
    for (int64_t l = 0; l < c->L; ++l)
      for (int i = 0; i < 4; ++i) {
        double sum = 0;
        for (int64_t k = l * c->K; k < (l + 1) * c->K; ++k) sum += c->p[k * 2 + i / 2] * c->q[k * 2 + i % 2];
        p[l * 4 + i] = (T)sum;
      }
  }

  void run() {
    read_parameters();
#pragma omp parallel num_threads((int)threads) if (threads > 1)
    {
#ifdef _OPENMP
      const int me = omp_get_thread_num();
#else
      const int me = 0;
#endif
      Lab<T> lab;
      lab.set(c, p, q, (V *)(scratch + me * each));
#pragma omp for schedule(dynamic, 1)
      for (int64_t group = 0; group < groups; ++group) {
        V *mine = total(group);
        for (int64_t i = 0; i < sums + 2; ++i) mine[i] = V{};
        lab.dp = mine, lab.dq = mine + count, lab.loss = lab.bad = V{};
        for (int64_t block = blocks * group / groups; block < blocks * (group + 1) / groups; ++block)
          c->data ? lab.stored(block) : lab.fresh(block);
        mine[sums] = lab.loss, mine[sums + 1] = lab.bad;
      }
    }
    if (c->mode == LINNET_GRADIENT || c->mode == LINNET_TRAIN) add_up();
  }

  double sum(int64_t i) const {
    double out = 0;
    for (int64_t group = 0; group < groups; ++group) {
      const V x = total(group)[i];
      T lanes = 0;
      for (int j = 0; j < W; ++j) lanes += x[j];
      out += lanes;
    }
    return out;
  }

  void add_up() {
    c->loss[0] = sum(sums), c->loss[1] = sum(sums + 1);
    if (!c->diagonal) {
      for (int64_t i = 0; i < count; ++i) c->dp[i] = sum(i), c->dq[i] = sum(count + i);
      return;
    }
    for (int64_t l = 0; l < c->L; ++l) {
      const double g[4] = {sum(l * 4), sum(l * 4 + 1), sum(l * 4 + 2), sum(l * 4 + 3)};
      for (int64_t k = l * c->K; k < (l + 1) * c->K; ++k) {
        const double *P = c->p + k * 2, *Q = c->q + k * 2;
        for (int i = 0; i < 2; ++i) {
          c->dp[k * 2 + i] = g[i * 2] * Q[0] + g[i * 2 + 1] * Q[1];
          c->dq[k * 2 + i] = g[i] * P[0] + g[2 + i] * P[1];
        }
      }
    }
  }
};

// One step of Adam (Kingma and Ba 2015) on p and q; a gradient that is no number leaves everything as it was.
bool adam(const linnet_icl *c, int64_t step, double scale) {
  const int64_t half = c->L * c->K * (c->diagonal ? 2 : c->E * c->E);
  double square = 0;
  for (int64_t i = 0; i < half; ++i) square += c->dp[i] * c->dp[i] + c->dq[i] * c->dq[i];
  const double norm = sqrt(square) * scale;
  if (!(norm < 1e30)) return false;
  if (c->clip > 0 && norm > c->clip) scale *= c->clip / norm;
  const double t = (double)(c->done + step + 1);
  const double fix1 = 1 / (1 - pow(c->beta1, t)), fix2 = 1 / (1 - pow(c->beta2, t)), rate = c->rate[step];
  for (int64_t i = 0; i < 2 * half; ++i) {
    if (c->frozen && c->frozen[i]) continue;
    const double g = (i < half ? c->dp[i] : c->dq[i - half]) * scale;
    c->m[i] += (1 - c->beta1) * (g - c->m[i]);
    c->v[i] += (1 - c->beta2) * (g * g - c->v[i]);
    (i < half ? c->p[i] : c->q[i - half]) -= rate * c->m[i] * fix1 / (sqrt(c->v[i] * fix2) + c->eps);
  }
  return true;
}

template <class T>
int icl_typed(const linnet_icl *call) {
  linnet_icl now = *call;
  Bench<T> bench;
  if (!bench.make(&now)) return LINNET_NO_MEMORY;
  if (now.mode != LINNET_TRAIN) {
    bench.run();
  } else {
    double left_out = 0;
    for (int64_t step = 0; step < now.steps; ++step, now.first += now.samples) {
      bench.run();
      left_out += now.loss[1];
      now.curve[step] = now.loss[0] / (double)now.samples;
      if (!adam(&now, step, 1.0 / (double)now.samples)) now.curve[step] = NAN;
    }
    now.loss[1] = left_out;
  }
  free(bench.memory);
  return LINNET_OK;
}

int icl(const linnet_icl *c) { return (c->wide ? icl_typed<double> : icl_typed<float>)(c); }

}  // namespace
