/* Causal linear attention one token at a time: the algorithm of the first published CPU kernel, as a yardstick.

       s_t = s_{t-1} + k_t v_t^T,    out_t = q_t s_t        (numerator only; keys and queries arrive mapped)

   Katharopoulos et al. 2020, arXiv:2006.16236, algorithm 1 and equations 13-15. Written from the description, plainly:
   one rank-1 update and one vector-matrix product per token, tasks = batch x heads. How it is compiled is in per_token.py.
   All arrays are contiguous float32: q, k [N,T,F], v, out [N,T,V], N = batch x heads. Returns 0, or 1 without memory. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* s [F,V] += a [F] b [V]^T */
static void add_outer(float *s, const float *a, const float *b, int64_t F, int64_t V) {
    for (int64_t f = 0; f < F; f++)
        for (int64_t j = 0; j < V; j++) s[f * V + j] += a[f] * b[j];
}

/* y [V] += a [F] s [F,V] */
static void row_times(float *y, const float *a, const float *s, int64_t F, int64_t V) {
    for (int64_t f = 0; f < F; f++)
        for (int64_t j = 0; j < V; j++) y[j] += a[f] * s[f * V + j];
}

/* y [F] += s [F,V] b [V] */
static void times_column(float *y, const float *s, const float *b, int64_t F, int64_t V) {
    for (int64_t f = 0; f < F; f++) {
        float sum = 0;
        for (int64_t j = 0; j < V; j++) sum += s[f * V + j] * b[j];
        y[f] += sum;
    }
}

/* out must arrive as zeros. */
int per_token_forward(float *out, const float *q, const float *k, const float *v, int64_t N, int64_t T, int64_t F,
                      int64_t V, int64_t threads) {
    int failed = 0;
#pragma omp parallel for num_threads(threads) reduction(| : failed)
    for (int64_t n = 0; n < N; n++) {
        float *s = calloc((size_t)(F * V), sizeof(float));
        if (!s) {
            failed = 1;
            continue;
        }
        for (int64_t t = n * T; t < (n + 1) * T; t++) {
            add_outer(s, k + t * F, v + t * V, F, V);
            row_times(out + t * V, q + t * F, s, F, V);
        }
        free(s);
    }
    return failed;
}

/* dq_t = s_t g_t on the way forward; dk_t = r_t v_t and dv_t = k_t r_t on the way back, r_t = sum_{j>=t} q_j g_j^T.
   dq, dk, dv must arrive as zeros. */
int per_token_backward(float *dq, float *dk, float *dv, const float *q, const float *k, const float *v, const float *g,
                       int64_t N, int64_t T, int64_t F, int64_t V, int64_t threads) {
    int failed = 0;
#pragma omp parallel for num_threads(threads) reduction(| : failed)
    for (int64_t n = 0; n < N; n++) {
        float *s = calloc((size_t)(F * V), sizeof(float));
        if (!s) {
            failed = 1;
            continue;
        }
        for (int64_t t = n * T; t < (n + 1) * T; t++) {
            add_outer(s, k + t * F, v + t * V, F, V);
            times_column(dq + t * F, s, g + t * V, F, V);
        }
        memset(s, 0, (size_t)(F * V) * sizeof(float));
        for (int64_t t = (n + 1) * T - 1; t >= n * T; t--) {
            add_outer(s, q + t * F, g + t * V, F, V);
            times_column(dk + t * F, s, v + t * V, F, V);
            row_times(dv + t * V, k + t * F, s, F, V);
        }
        free(s);
    }
    return failed;
}
