"""Every struct that crosses the C ABI, by the names of its fields: the counterpart of csrc/*_fields.h.

The comments there say what each field means. Both sides are compared when the library is loaded (library.py), so a
library with another name, kind or offset is refused. With LINNET_CHECK=1 the shapes below are compared with the tensors
of every call.
"""

from __future__ import annotations

from .abi import Call, Struct, declare

# ---- linear attention: csrc/attention_fields.h ----------------------------------------------------------------------
# B batch, T time, H heads, D query/key width, F features, V value width, S sequences


@declare
class Strides(Struct):
    """How far the next batch row, token, head and element are; a call takes `x.stride()`."""

    c_name = "linnet_strides"
    fields = """
        int64  b t h d
    """


KERNEL = """
    int64   kind normalize threads
    double  scale eps c0 c1 c2
"""
SEQUENCE_POINTERS = """
    float*  q[B,Tq,H,D|q_strides] k[B,Tk,H,D|k_strides] v[B,Tk,H,V|v_strides]
    uint8*  mask[B,Tk]
    int64*  cu[S+1]
    float*  s0[S,H,F,V] z0[S,H,F]
"""
SEQUENCE_SIZES = """
    int64           S B Tq Tk H D V F
    linnet_strides  q_strides k_strides v_strides
    int64           causal
"""


@declare
class Forward(Call):
    """out, and the state after the last token."""

    function = "linnet_forward"
    fields = f"""
        float*  out[B,Tq,H,V] inv[B,Tq,H] s_out[S,H,F,V] z_out[S,H,F]
        {SEQUENCE_POINTERS}
        {SEQUENCE_SIZES}
        {KERNEL}
    """


@declare
class Backward(Call):
    """Gradients of q, k, v and of the initial state."""

    function = "linnet_backward"
    fields = f"""
        float*  dq[B,Tq,H,D] dk[B,Tk,H,D] dv[B,Tk,H,V] ds0[S,H,F,V] dz0[S,H,F]
        float*  g[B,Tq,H,V|g_strides] gs[S,H,F,V] gz[S,H,F] out[B,Tq,H,V|o_strides] inv[B,Tq,H]
        {SEQUENCE_POINTERS}
        linnet_strides  g_strides o_strides
        {SEQUENCE_SIZES}
        {KERNEL}
    """


@declare
class Step(Call):
    """One token of every row; the state is float32, or float64 where `wide`."""

    function = "linnet_step"
    fields = f"""
        float*  out[B,H,V]
        void*   s_out[B,H,F,V] z_out[B,H,F]
        float*  q[B,1,H,D|q_strides] k[B,1,H,D|k_strides] v[B,1,H,V|v_strides]
        void*   s0[B,H,F,V] z0[B,H,F]
        int64   B H D V F
        linnet_strides  q_strides k_strides v_strides
        int64   wide
        {KERNEL}
    """


# ---- the gated family: csrc/gated_fields.h --------------------------------------------------------------------------
# G 0, 1 or D decays per head and token

GATED_POINTERS = """
    float*  q[B,T,H,D|q_strides] k[B,T,H,D|k_strides] v[B,T,H,V|v_strides] decay[B,T,H,G|decay_strides]
    float*  beta[B,T,H,1|beta_strides] erase[B,T,H,D|erase_strides] rate[B,T,H,D|rate_strides]
    uint8*  mask[B,T]
    int64*  cu[S+1]
"""
GATED_SIZES = """
    int64           S B T H D V G rule slots floats
    linnet_strides  q_strides k_strides v_strides decay_strides beta_strides erase_strides rate_strides
    int64           threads
"""


@declare
class GatedForward(Call):
    """out, the state after the last token, and states for the backward pass."""

    function = "linnet_gated_forward"
    fields = f"""
        float*  out[B,T,H,V] s_out[S,H,D,V] kept[slots,H,floats]
        int64*  faults[1]
        {GATED_POINTERS}
        float*  s0[S,H,D,V]
        {GATED_SIZES}
    """


@declare
class GatedBackward(Call):
    """Gradients of all inputs and of the initial state."""

    function = "linnet_gated_backward"
    fields = f"""
        float*  dq[B,T,H,D] dk[B,T,H,D] dv[B,T,H,V] ddecay[B,T,H,G] dbeta[B,T,H] derase[B,T,H,D] drate[B,T,H,D]
        float*  ds0[S,H,D,V] g[B,T,H,V|g_strides] gs[S,H,D,V] kept[slots,H,floats]
        {GATED_POINTERS}
        linnet_strides  g_strides
        {GATED_SIZES}
    """


# ---- rows: csrc/nn_fields.h -----------------------------------------------------------------------------------------


@declare
class Norm(Call):
    """LayerNorm or RMSNorm, and mean and 1 / deviation of every row."""

    function = "linnet_norm"
    fields = """
        float*  out[rows,cols] stat[rows,2] x[rows,cols] weight[cols] bias[cols]
        int64   rows cols rms threads
        double  eps
    """


@declare
class NormBackward(Call):
    """Gradients of a norm."""

    function = "linnet_norm_backward"
    fields = """
        float*  dx[rows,cols] dweight[cols] dbias[cols] g[rows,cols] x[rows,cols] weight[cols] stat[rows,2]
        int64   rows cols rms threads
    """


@declare
class Activation(Call):
    """The activation of an MLP; width = 2 cols for swiglu."""

    function = "linnet_activation"
    fields = """
        float*  out[rows,cols] hidden[rows,width] bias[width]
        int64   rows cols width kind threads
    """


@declare
class ActivationBackward(Call):
    """Gradients of an activation, and the activation once more."""

    function = "linnet_activation_backward"
    fields = """
        float*  dhidden[rows,width] out[rows,cols] dbias[width] g[rows,cols] hidden[rows,width]
        int64   rows cols width kind threads
    """


@declare
class Gate(Call):
    """(x + skip u) silu(z), the gate of a mixer."""

    function = "linnet_gate"
    fields = """
        float*  out[rows,cols] x[rows,cols] z[rows,cols|z_stride] u[rows,cols|u_stride] skip[cols]
        int64   rows cols z_stride u_stride threads
    """


@declare
class GateBackward(Call):
    """Gradients of a gate."""

    function = "linnet_gate_backward"
    fields = """
        float*  dx[rows,cols] dz[rows,cols] du[rows,cols] dskip[cols]
        float*  g[rows,cols] x[rows,cols] z[rows,cols|z_stride] u[rows,cols|u_stride] skip[cols]
        int64   rows cols z_stride u_stride threads
    """


@declare
class Mixtures(Call):
    """x + share change for several shares: the token shift of RWKV."""

    function = "linnet_mixtures"
    fields = """
        float*  out[count,rows,cols] x[rows,cols] change[rows,cols] share[count,cols]
        int64   rows cols count threads
    """


@declare
class MixturesBackward(Call):
    """Gradients of the mixtures, from one gradient for each."""

    function = "linnet_mixtures_backward"
    fields = """
        float*  dx[rows,cols] dchange[rows,cols] dshare[count,cols]
        float*  g0[rows,cols] g1[rows,cols] g2[rows,cols] g3[rows,cols]
        float*  g4[rows,cols] g5[rows,cols] g6[rows,cols] g7[rows,cols]
        float*  change[rows,cols] share[count,cols]
        int64   rows cols count threads
    """


@declare
class Rotate(Call):
    """Rotary positions, there or back."""

    function = "linnet_rotate"
    fields = """
        float*  out[rows,cols|out_stride] x[rows,cols|x_stride] cos[period,half] sin[period,half]
        int64   rows cols out_stride x_stride period half first back threads
    """


@declare
class CrossEntropy(Call):
    """Losses of rows of scores, which may become gradients in place."""

    function = "linnet_cross_entropy"
    fields = """
        float*  scores[rows,cols] losses[rows]
        int64*  targets[rows]
        int64   rows cols gradient threads
    """


@declare
class ColumnSums(Call):
    """Rows added up."""

    function = "linnet_column_sums"
    fields = """
        float*  sums[cols] x[rows,cols|x_stride]
        int64   rows cols x_stride threads
    """


@declare
class CausalConv(Call):
    """A short causal convolution along the rows of each sequence, with or without a gate."""

    function = "linnet_causal_conv"
    fields = """
        float*  out[rows,cols] x[rows,cols] weight[kernel_size,cols] bias[cols] gate[rows,cols]
        int64   rows cols kernel_size length threads
    """


@declare
class CausalConvBackward(Call):
    """Gradients of a causal convolution."""

    function = "linnet_causal_conv_backward"
    fields = """
        float*  dx[rows,cols] dgate[rows,cols] dweight[kernel_size,cols] dbias[cols]
        float*  g[rows,cols] x[rows,cols] weight[kernel_size,cols] bias[cols] gate[rows,cols]
        int64   rows cols kernel_size length threads
    """


@declare
class Choose(Call):
    """Values drawn from the parameters that an image model predicts."""

    function = "linnet_choose"
    fields = """
        int64*   values[rows]
        float*   params[rows,width]
        double*  uniforms[rows,2]
        int64    rows width levels mixture
    """


# ---- scans: csrc/scan_fields.h --------------------------------------------------------------------------------------
# B batch, T time, E channels, N numbers per channel, S sequences

SCAN_PLACES = """
    uint8*  mask[B,T]
    int64*  cu[S+1]
"""
SCAN_SIZES = """
    int64   S B T E slots width chunk threads
"""
SELECTIVE_SCAN_INPUTS = f"""
    float*  x[B,T,E|x_b,x_t] dt[B,T,E|dt_b,dt_t] a[E,N] b[B,T,N|b_b,b_t] c[B,T,N|c_b,c_t] s0[S,E,N]
    {SCAN_PLACES}
"""
SELECTIVE_SCAN_SIZES = f"""
    {SCAN_SIZES}
    int64   N x_b x_t dt_b dt_t b_b b_t c_b c_t
"""
WKV_INPUTS = f"""
    float*  k[B,T,E|k_b,k_t] v[B,T,E|v_b,v_t] decay[E] bonus[E] s0[S,3,E]
    {SCAN_PLACES}
"""
WKV_SIZES = f"""
    {SCAN_SIZES}
    int64   k_b k_t v_b v_t
"""


@declare
class SelectiveScan(Call):
    """y, the last state, and the states that the backward starts from."""

    function = "linnet_selective_scan"
    fields = f"""
        float*  y[B,T,E] s_out[S,E,N] kept[slots,width]
        {SELECTIVE_SCAN_INPUTS}
        {SELECTIVE_SCAN_SIZES}
    """


@declare
class SelectiveScanBackward(Call):
    """Gradients of all inputs and of the initial state."""

    function = "linnet_selective_scan_backward"
    fields = f"""
        float*  dx[B,T,E] ddt[B,T,E] da[E,N] db[B,T,N] dc[B,T,N] ds0[S,E,N]
        float*  g[B,T,E|g_b,g_t] gs[S,E,N] kept[slots,width]
        {SELECTIVE_SCAN_INPUTS}
        int64   g_b g_t
        {SELECTIVE_SCAN_SIZES}
    """


@declare
class Wkv(Call):
    """The average of RWKV-4, the last state, and the states that the backward starts from."""

    function = "linnet_wkv"
    fields = f"""
        float*  out[B,T,E] s_out[S,3,E] kept[slots,width]
        {WKV_INPUTS}
        {WKV_SIZES}
    """


@declare
class WkvBackward(Call):
    """Gradients of all inputs and of the initial state."""

    function = "linnet_wkv_backward"
    fields = f"""
        float*  dk[B,T,E] dv[B,T,E] ddecay[E] dbonus[E] ds0[S,3,E]
        float*  g[B,T,E|g_b,g_t] gs[S,3,E] kept[slots,width]
        {WKV_INPUTS}
        int64   g_b g_t
        {WKV_SIZES}
    """


# ---- the decoder: csrc/model_fields.h. Its pointers are checked by decode_check.py ----------------------------------


@declare
class Matrix(Struct):
    """A packed matrix; `out` = 0: there is none."""

    c_name = "linnet_matrix"
    fields = """
        void*   w
        float*  scale
        int32*  sums
        float*  bias
        int64   out in kind
    """


@declare
class Matmul(Call):
    """A product alone, for tests and benchmarks."""

    function = "linnet_matmul"
    fields = """
        float*         y[rows,matrix.out] x[rows,matrix.in]
        linnet_matrix  matrix
        int64          rows threads
    """


@declare
class Map(Struct):
    """How a head of q or k becomes features."""

    c_name = "linnet_map"
    fields = """
        int64   prepare core D R F per_head norm square activation rows order
        float*  weight bias
        int64*  index
        double  scale eps w0 w1 w_diag w_off
    """


@declare
class Gated(Struct):
    """A matrix per head that decays, with or without an erase: csrc/recurrent_fields.h."""

    c_name = "linnet_gated"
    fields = """
        int64   groups decay gating norm joint q k v beta step gate narrow narrow_gate scaled_values
        float*  rate step_bias skip norm_weight norm_bias
        double  scale norm_eps length_eps top normalizer least most
        linnet_matrix  widen widen_gate
    """


@declare
class Rwkv(Struct):
    """Token shift, and what WKV-4 or WKV-7 need."""

    c_name = "linnet_rwkv"
    fields = """
        float*  shift decay bonus remove replace norm_weight norm_bias
        double  norm_eps
        int64   values
        linnet_matrix  k v value_out decay_in rate_in gate_in decay_out rate_out gate_out
    """


@declare
class Scan(Struct):
    """A selective scan."""

    c_name = "linnet_scan"
    fields = """
        int64   numbers
        float*  a skip
        double  norm_eps
        linnet_matrix  select widen
    """


@declare
class Layer(Struct):
    """A mixer and an MLP."""

    c_name = "linnet_layer"
    fields = """
        int64   mixer heads kv_heads key value features window kernel_size channels exact state past cache mlp hidden
        float*  norm1 bias1 norm2 bias2
        int64   turns gate_heads
        float*  q_norm k_norm
        double  qk_eps norm_eps
        float*  filter filter_bias
        double  eps scale
        linnet_map     q_map k_map
        linnet_gated   gated
        linnet_rwkv    rwkv
        linnet_scan    scan
        linnet_matrix  in out up down
    """


@declare
class Model(Struct):
    """The embedding, the layers, the head."""

    c_name = "linnet_model"
    fields = """
        linnet_layer*  layers
        float*   last last_bias embed table
        double*  waves
        int64    n_layers width pre rms positions half caches tokens limit
        double   norm_eps gain
        linnet_matrix  input head
    """


@declare
class Decode(Struct):
    """One step of a running batch; kept, and changed from step to step."""

    c_name = "linnet_decode"
    fields = """
        float*   out
        void*    scratch
        float*   states
        int64*   positions
        float**  cache
        int64*   capacity slots tokens
        float*   values
        int64    stride B threads longest count
    """


# ---- in-context regression: csrc/icl_fields.h -----------------------------------------------------------------------

FRESH_POINTERS = """
    double*  sigma[choices] grid[points] log_weight[points]
"""
FRESH_SIZES = """
    int64   n choices uniform points seed first target augmented
    double  augmented_x augmented_w augmented_weight limit temper
"""
ICL_SIZES = """
    int64   L K E p_rows p_cols samples threads
"""
STORED_SIZES = """
    int64   blocks packed lanes wide
"""


@declare
class IclGradient(Call):
    """Losses and gradients, summed over stored or fresh sequences."""

    function = "linnet_icl_gradient"
    fields = f"""
        double*  dp[L,K,p_rows,p_cols] dq[L,K,p_rows,p_cols] loss[2] p[L,K,p_rows,p_cols] q[L,K,p_rows,p_cols]
        void*    data[blocks,packed,lanes]
        {FRESH_POINTERS}
        {ICL_SIZES}
        {STORED_SIZES}
        {FRESH_SIZES}
    """


@declare
class IclAnswers(Call):
    """w of stored sequences."""

    function = "linnet_icl_answers"
    fields = f"""
        void*    out[blocks,outputs,lanes]
        double*  p[L,K,p_rows,p_cols] q[L,K,p_rows,p_cols]
        void*    data[blocks,packed,lanes]
        int64    outputs
        {ICL_SIZES}
        {STORED_SIZES}
    """


@declare
class IclJacobian(Call):
    """w of stored sequences, and its derivatives by the entries of the matrices."""

    function = "linnet_icl_jacobian"
    fields = IclAnswers.fields


@declare
class IclTrain(Call):
    """Steps of Adam on fresh sequences."""

    function = "linnet_icl_train"
    fields = f"""
        double*  p[L,K,p_rows,p_cols] q[L,K,p_rows,p_cols] dp[L,K,p_rows,p_cols] dq[L,K,p_rows,p_cols] loss[2]
        double*  m[2*L*K*p_rows*p_cols] v[2*L*K*p_rows*p_cols] curve[steps] rate[steps]
        uint8*   frozen[2*L*K*p_rows*p_cols]
        {FRESH_POINTERS}
        {ICL_SIZES}
        int64    steps done
        {FRESH_SIZES}
        double   beta1 beta2 eps clip
    """
