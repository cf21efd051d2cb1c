// In-context regression transformers: loss and gradient of a block of sequences, in Gram form, one sequence per lane.
//
//     H = I + sum_k P_k S Q_k,  S' = H S Hᵀ            of every layer; E = d + 1, S [E,E] = sum_i e_i e_iᵀ
//     v_L = e_y,  v_l = H_lᵀ v_(l+1),  w = -v_0[:d]     the answer to a query x is <w, x>
//     loss = 1/2 |w - target|²   or   1/2 (<w, x> - y)²
// Backward, with U = dS' H:  dG = v_(l+1) dv_lᵀ + 2 U S,  dS = Hᵀ U + sym(Pᵀ dG Qᵀ),  dP = dG (S Q)ᵀ,  dQ = S Pᵀ dG
// which is 10 products of E³ for a layer of FULL (symmetric ones count half) and 4 for DIAG, whose G is omega times S
// entry by entry. Half of dG is kept, and half of dP and dQ summed, which saves the factors 2. The last layer touches
// only one row of H.
#pragma once
#include "draw.h"
#include "linnet.h"
#include "small_matmul.h"
#include "targets.h"

namespace {

// The call, whichever of the four it is: each fills in its own fields and leaves the others 0.
struct Regression {
  double *dp, *dq, *loss, *p, *q, *m, *v, *curve;
  void *out;
  const void *data;
  const double *sigma, *grid, *log_weight, *rate;
  const uint8_t *frozen;
  int64_t L, K, E, p_rows, p_cols, n, samples, threads;
  int64_t blocks, packed, lanes, outputs, choices, uniform, points, seed, first, target, wide, steps, done, augmented;
  double limit, temper, augmented_x, augmented_w, augmented_weight, beta1, beta2, eps, clip;
  bool diagonal, jacobian, train;  // train: p and q are changed, and the loss of each step is kept

  int64_t sigmas() const { return uniform ? 0 : choices; }
};

#define COPY(type, name) r.name = (decltype(r.name))c->name;
#define REGRESSION(call)                                    \
  Regression regression(const linnet_##call##_call *c) {    \
    Regression r = {};                                      \
    LINNET_FIELDS_##call(COPY)                              \
    r.diagonal = r.p_cols == 1;                             \
    return r;                                               \
  }
REGRESSION(icl_gradient)
REGRESSION(icl_answers)
REGRESSION(icl_jacobian)
REGRESSION(icl_train)
#undef REGRESSION
#undef COPY

// Everything one thread needs for the lanes it works on; N = E where the compiler is to know it, or 0.
template <class T, int N>
struct Lab {
  typedef typename Lanes<T>::type V;
  static constexpr int W = VL * 4 / sizeof(T);
  const Regression *c;
  int64_t width, L, K;
  const T *p, *q;                         // FULL [L,K,E,E]; diagonal: omega [L,2,2] in p
  V *s, *x, *h, *v, *dv, *row;            // S [L,E,E], S Q [L,K,E,E], H [L,E,E], v and dv [L+1,E], last rows [K,E]
  V *a, *b, *ds, *target, *query, *work;  // scratch [E,E] x 3, [d], [E], [E*E + 6 E]
  V *dp, *dq;                             // half the sums over the sequences: like p and q
  V loss, bad;

  static int64_t vectors(const Regression *c) {
    const int64_t E = c->E, EE = E * E, K = c->K;
    return c->L * EE * (2 + K) + 2 * (c->L + 1) * E + K * E + 4 * EE + 8 * E;
  }
  static int64_t sums(const Regression *c) { return c->diagonal ? c->L * 4 : 2 * c->L * c->K * c->E * c->E; }

  void set(const Regression *call, const T *p_, const T *q_, V *memory, V *total) {
    c = call, width = c->E, L = c->L, K = c->K, p = p_, q = q_;
    const int64_t E = width, EE = E * E;
    s = memory, x = s + L * EE, h = x + L * K * EE, v = h + L * EE, dv = v + (L + 1) * E, row = dv + (L + 1) * E;
    a = row + K * E, b = a + EE, ds = b + EE, target = ds + EE, query = target + E, work = query + E;
    dp = total, dq = total + sums(c) / 2;
  }

  ALWAYS int64_t size() const { return N ? N : width; }
  const T *P(int64_t l, int64_t k) const { return p + (l * K + k) * size() * size(); }
  const T *Q(int64_t l, int64_t k) const { return q + (l * K + k) * size() * size(); }

  void forward() {
    const int64_t E = size(), EE = E * E;
    for (int64_t l = 0; l + 1 < L; ++l) {
      const V *S = s + l * EE;
      V *H = h + l * EE, *next = s + (l + 1) * EE;
      c->diagonal ? diagonal_map(H, S, p + l * 4) : full_map(H, S, l);
      for (int64_t i = 0; i < E; ++i) H[i * E + i] += (T)1;
      product<N>(a, plain((const V *)H, E), plain(S, E), E);
      upper_product<N>(next, plain((const V *)a, E), turned((const V *)H, E), E);
      mirror(next, E);
    }
    read_out();
  }

  void full_map(V *H, const V *S, int64_t l) {
    const int64_t E = size();
    for (int64_t k = 0; k < K; ++k) {
      V *X = x + (l * K + k) * E * E;
      product<N>(X, plain(S, E), plain(Q(l, k), E), E);
      product<N>(H, plain(P(l, k), E), plain((const V *)X, E), E, k > 0);
    }
  }

  void diagonal_map(V *H, const V *S, const T *omega) {
    const int64_t E = size(), d = E - 1;
    for (int64_t i = 0; i < E; ++i, S += E, H += E) {
      const T xs = omega[i < d ? 0 : 2], y = omega[i < d ? 1 : 3];
      for (int64_t j = 0; j < d; ++j) H[j] = S[j] * xs;
      H[d] = S[d] * y;
    }
  }

  void read_out() {
    const int64_t E = size(), d = E - 1, EE = E * E;
    V *top = v + (L - 1) * E;
    const V *S = s + (L - 1) * EE;
    for (int64_t j = 0; j < E; ++j) v[L * E + j] = top[j] = V{} + (T)(j == d);
    if (c->diagonal) {
      for (int64_t j = 0; j < E; ++j) top[j] += S[d * E + j] * p[(L - 1) * 4 + 2 + (j == d)];
    } else {
      for (int64_t k = 0; k < K; ++k) {
        V *t = row + k * E;
        row_product<N>(t, P(L - 1, k) + d * E, plain(S, E), E);
        row_product<N>(top, (const V *)t, plain(Q(L - 1, k), E), E, true);
      }
    }
    for (int64_t l = L - 1; l-- > 0;)
      row_product<N>(v + l * E, (const V *)v + (l + 1) * E, plain((const V *)h + l * EE, E), E);
  }

  // The loss of every lane, and its gradient with respect to v_0 into dv_0: that of log(loss) where it is above
  // `temper`, so that a sequence on which the polynomial explodes counts without dominating the others.
  V error(T weight) {
    const int64_t d = size() - 1;
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
    const int64_t E = size(), EE = E * E;
    for (int64_t l = 0; l + 1 < L; ++l)
      row_product<N>(dv + (l + 1) * E, (const V *)dv + l * E, turned((const V *)h + l * EE, E), E);
    last_layer();
    for (int64_t l = L - 1; l-- > 0;) layer(l);
  }

  void last_layer() {
    const int64_t E = size(), d = E - 1, l = L - 1;
    const V *S = s + l * E * E;
    V *half = work, *z = half + E;
    for (int64_t j = 0; j < E; ++j) half[j] = dv[l * E + j] * (T)0.5;
    for (int64_t i = 0; i < E * E; ++i) ds[i] = V{};
    if (c->diagonal) {
      for (int64_t j = 0; j < E; ++j) {
        dp[l * 4 + 2 + (j == d)] += half[j] * S[d * E + j];
        const V back = half[j] * p[l * 4 + 2 + (j == d)];
        ds[d * E + j] += back, ds[j * E + d] += back;
      }
      return;
    }
    for (int64_t k = 0; k < K; ++k) {
      const T *Pd = P(l, k) + d * E;
      const V *t = row + k * E;
      V *out = dq + (l * K + k) * E * E;
      row_product<N>(z, (const V *)half, turned(Q(l, k), E), E);
      row_product<N>(dp + (l * K + k) * E * E + d * E, (const V *)z, plain(S, E), E, true);
      for (int64_t i = 0; i < E; ++i)
        for (int64_t j = 0; j < E; ++j) {
          out[i * E + j] += t[i] * half[j];
          ds[i * E + j] += z[j] * Pd[i] + z[i] * Pd[j];
        }
    }
  }

  void layer(int64_t l) {
    const int64_t E = size();
    const V *S = s + l * E * E, *H = h + l * E * E;
    V *half = work;
    for (int64_t j = 0; j < E; ++j) half[j] = dv[l * E + j] * (T)0.5;
    product<N>(a, plain((const V *)ds, E), plain(H, E), E);  // U
    if (l > 0) upper_product<N>(ds, turned(H, E), plain((const V *)a, E), E, S);
    product_outer<N>(b, (const V *)v + (l + 1) * E, (const V *)half, plain((const V *)a, E), plain(S, E), E);  // dG / 2
    c->diagonal ? diagonal_gradient(l, S) : full_gradient(l, S);
    if (l > 0) mirror(ds, E);
  }

  void diagonal_gradient(int64_t l, const V *S) {
    const int64_t E = size(), d = E - 1;
    const T *omega = p + l * 4;
    V *sum = dp + l * 4;
    for (int64_t i = 0; i < E; ++i) {
      const int64_t first = i < d ? 0 : 2;
      V xs = V{};
      for (int64_t j = 0; j < d; ++j) xs += b[i * E + j] * S[i * E + j];
      sum[first] += xs, sum[first + 1] += b[i * E + d] * S[i * E + d];
    }
    if (l == 0) return;
    for (int64_t i = 0; i < d; ++i) {
      for (int64_t j = i; j < d; ++j) ds[i * E + j] += (b[i * E + j] + b[j * E + i]) * omega[0];
      ds[i * E + d] += b[i * E + d] * omega[1] + b[d * E + i] * omega[2];
    }
    ds[d * E + d] += b[d * E + d] * (omega[3] * (T)2);
  }

  void full_gradient(int64_t l, const V *S) {
    const int64_t E = size(), EE = E * E;
    const V *below = l > 0 ? h + (l - 1) * EE : nullptr;
    for (int64_t k = 0; k < K; ++k) {
      V *out_p = dp + (l * K + k) * EE, *out_q = dq + (l * K + k) * EE;
      const V *X = x + (l * K + k) * EE;
      product<N>(a, turned(P(l, k), E), plain((const V *)b, E), E, false, (const V *)out_q);
      product<N>(out_q, plain(S, E), plain((const V *)a, E), E, true);
      if (l > 0) upper_sum<N>(ds, plain((const V *)a, E), turned(Q(l, k), E), E, (const V *)out_p, X);
      product<N>(out_p, plain((const V *)b, E), turned(X, E), E, true, below);
    }
  }

  // Sequences whose loss is NaN or above the limit are left out and counted: their block runs again without them.
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

  // Empty a lane: no loss, no gradient.
  void empty(int lane) {
    const int64_t E = size(), EE = E * E;
    for (int64_t e = 0; e < EE; ++e) s[e][lane] = 0;
    for (int64_t e = 0; e < E; ++e) target[e][lane] = query[e][lane] = 0;
  }

  // One block: W sequences from memory.
  void stored(int64_t block) {
    const int64_t E = size(), d = E - 1, packed = E * (E + 1) / 2;
    const V *in = (const V *)c->data + block * (packed + d);
    for (int64_t i = 0, e = 0; i < E; ++i)
      for (int64_t j = i; j < E; ++j, ++e) s[i * E + j] = s[j * E + i] = in[e];
    for (int64_t i = 0; i < d; ++i) target[i] = in[packed + i], query[i] = V{};
    target[d] = query[d] = V{};
    if (!c->out) {
      loss += run_lanes(1);
      backward();
      return;
    }
    forward();
    V *out = (V *)c->out + block * d * (c->jacobian ? 1 + sums(c) : 1);
    for (int64_t i = 0; i < d; ++i) out[i] = -v[i];
    if (c->jacobian)
      for (int64_t i = 0; i < d; ++i) {
        for (int64_t j = 0; j < sums(c); ++j) dp[j] = V{};
        for (int64_t j = 0; j < E; ++j) dv[j] = V{} - (T)(i == j);
        backward();
        for (int64_t j = 0; j < sums(c); ++j) out[d + i * sums(c) + j] = dp[j] * (T)2;
      }
  }

  // One block: W fresh sequences of the stream, in float.
  void fresh(int64_t block) {
    const int64_t E = size(), d = E - 1, index = block * W;
    const bool augmented = c->augmented > 0 && index / 16 % c->augmented == 0;  // in sixteens on any number of lanes
    Random random;
    random.start((uint64_t)c->seed, (uint64_t)(c->first + index));
    vf *w = work;
    random.normals(w, d);
    if (augmented)
      for (int64_t i = 0; i < d; ++i) w[i] *= (float)c->augmented_w;
    const vf sigma = draw_sigma(random, c->sigma, c->sigmas());
    draw_sums(random, s, a, w, sigma, c->n, E, augmented ? (float)c->augmented_x : 1.0f);
    set_target(random, w, sigma);
    for (int64_t i = c->samples - index; i < W; ++i) empty((int)i);
    const vf here = run_lanes(augmented ? (float)c->augmented_weight : 1.0f);
    if (!augmented) loss += here;
    backward();
  }

  void set_target(Random &random, const vf *w, vf sigma) {
    const int64_t E = size(), d = E - 1;
    target[d] = query[d] = vf{};
    if (c->target == LINNET_QUERY) {
      random.normals(query, d);
      for (int64_t i = 0; i < d; ++i) query[d] += query[i] * w[i];
    } else if (c->target == LINNET_WEIGHTS) {
      for (int64_t i = 0; i < d; ++i) target[i] = w[i];
    } else if (c->target == LINNET_RIDGE) {
      ridge(target, b, s, sigma * sigma, E);
    } else {
      posterior_mean(target, work + E, s, c->grid, c->log_weight, c->points, c->n, E);
    }
  }
};

}  // namespace
