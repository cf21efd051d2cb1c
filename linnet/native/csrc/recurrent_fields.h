// What the decoder takes of a layer whose state is a matrix per head, or some numbers per channel.
//
//   gated   S = Diag(a) S + k v^T, with or without an erase: RetNet, GLA, Mamba-2, the delta rules     gated_step.h
//   rwkv    token shift, then WKV-4 per channel, WKV-7 per head, or channel mixing                     rwkv_step.h
//   scan    Mamba's selective scan                                                                     scan_step.h
//
// E model width, H heads, D key width, V value width of the layer; G heads of q and k, N numbers per channel of a scan,
// C its channels. "Where" is a place in a row of the projection, in floats; -1: there is no such part.
#pragma once
#include "fields.h"
#include "matrix_fields.h"

enum { LINNET_NO_DECAY, LINNET_FIXED_DECAY, LINNET_STEP_DECAY, LINNET_CHANNEL_STEP_DECAY, LINNET_SIGMOID_DECAY };
enum { LINNET_NO_GATE, LINNET_SILU_GATE, LINNET_SIGMOID_GATE };
enum { LINNET_NO_NORM, LINNET_LAYER_NORM, LINNET_RMS_NORM };

// decay: fixed   a = rate [H]
//        step    a = e^(rate dt), dt = softplus(step + step_bias) within [least, most], rate [H]; by head or by channel
//        sigmoid a = sigmoid(widened)^(1 / normalizer), by channel
// out = norm(S^T q + skip v) * gate; `joint`: the norm covers the values of H / joint heads, after the gate.
#define LINNET_FIELDS_gated(FIELD)                                                                                \
  FIELD(int64_t, groups) FIELD(int64_t, decay) FIELD(int64_t, gating) FIELD(int64_t, norm) FIELD(int64_t, joint)  \
  FIELD(int64_t, q) FIELD(int64_t, k) FIELD(int64_t, v) /* where: [G,D], [G,D], [H,V] */                          \
  FIELD(int64_t, beta)        /* where: [H]; the delta rule, with q and k divided by their lengths */             \
  FIELD(int64_t, step)        /* where: [H], of a step decay by head */                                           \
  FIELD(int64_t, gate)        /* where: [H,V], unless widen_gate computes it */                                   \
  FIELD(int64_t, narrow) FIELD(int64_t, narrow_gate) /* where: the inputs of widen and widen_gate */              \
  FIELD(int64_t, scaled_values) /* v times dt is written */                                                       \
  FIELD(const float *, rate) FIELD(const float *, step_bias) /* [H]; [H], or [H,D] by channel */                  \
  FIELD(const float *, skip)  /* [H], or null */                                                                  \
  FIELD(const float *, norm_weight) FIELD(const float *, norm_bias) /* [V], or [H,V] of a joint norm; or null */  \
  FIELD(double, scale)        /* of q */                                                                          \
  FIELD(double, norm_eps)                                                                                         \
  FIELD(double, length_eps)   /* added to |q|^2 and |k|^2 */                                                      \
  FIELD(double, top)          /* beta = top sigmoid(.) */                                                         \
  FIELD(double, normalizer) FIELD(double, least) FIELD(double, most)                                              \
  FIELD(linnet_matrix, widen) FIELD(linnet_matrix, widen_gate) /* to [H,D]; to [H,V] */

// Inputs of the matrices: n + shift (previous n - n), one mixture each. WKV-4: r (the layer's `in`), k, v. WKV-7: these
// and the narrow halves of decay, rate and gate. Channel mixing: k (the layer's `in`) and r (`k` here, or none).
enum { LINNET_OWN_VALUES, LINNET_GIVES_VALUES, LINNET_TAKES_VALUES };  // of WKV-7: to later layers, from the first

#define LINNET_FIELDS_rwkv(FIELD)                                                                                 \
  FIELD(const float *, shift) /* [mixtures,E] */                                                                  \
  FIELD(const float *, decay) FIELD(const float *, bonus) /* WKV-4: w and u [E]; WKV-7: null and bonus [H,D] */   \
  FIELD(const float *, remove) FIELD(const float *, replace) /* [H,D] */                                          \
  FIELD(const float *, norm_weight) FIELD(const float *, norm_bias) /* [H,V] */                                   \
  FIELD(double, norm_eps)                                                                                         \
  FIELD(int64_t, values)      /* LINNET_OWN_VALUES, ... */                                                        \
  FIELD(linnet_matrix, k) FIELD(linnet_matrix, v) /* v: if it takes values, then the inputs of value_out */       \
  FIELD(linnet_matrix, value_out) /* with a bias, to [H,V] */                                                     \
  FIELD(linnet_matrix, decay_in) FIELD(linnet_matrix, rate_in) FIELD(linnet_matrix, gate_in)                      \
  FIELD(linnet_matrix, decay_out) FIELD(linnet_matrix, rate_out) FIELD(linnet_matrix, gate_out)

#define LINNET_FIELDS_scan(FIELD)                                                                                 \
  FIELD(int64_t, numbers)       /* N */                                                                           \
  FIELD(const float *, a)       /* [N,C], below 0 */                                                              \
  FIELD(const float *, skip)    /* [C] */                                                                         \
  FIELD(double, norm_eps)       /* of the RMS norms of dt, b and c; 0: there are none */                           \
  FIELD(linnet_matrix, select)  /* from u to dt (as narrow as `widen` takes it), b [N], c [N] */                  \
  FIELD(linnet_matrix, widen)   /* from dt to [C], with the bias of dt */
