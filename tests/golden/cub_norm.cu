struct Item {
  float r0;
};
struct Out {
  float r0;
};
struct ElementState {
  const float* x0;
};
// r0 = (x0 * x0)
extern "C" __device__ void norm_element(void* state, void* index, void* out) {
  const ElementState& s = *static_cast<const ElementState*>(state);
  const long long i = *static_cast<const long long*>(index);
  Item* const result = static_cast<Item*>(out);
  const float x0 = s.x0[i];
  const float v1 = __fmul_rn(x0, x0);  // multiply(x0, x0)
  result->r0 = v1;
}
// r0 = (x0 * x0)
extern "C" __device__ void norm_map(void* e0, void* out) {
  Item* const result = static_cast<Item*>(out);
  const float x0 = *static_cast<const float*>(e0);
  const float v1 = __fmul_rn(x0, x0);  // multiply(x0, x0)
  result->r0 = v1;
}
extern "C" __device__ void norm_combine(void* x, void* y, void* out) {
  const Item a = *static_cast<const Item*>(x);
  const Item b = *static_cast<const Item*>(y);
  Item* const result = static_cast<Item*>(out);
  result->r0 = __fadd_rn(a.r0, b.r0);  // add
}
struct FinishState {
  long long unused;
};
// r0 = sqrt(a.r0)
extern "C" __device__ void norm_finish(void* state, void* accumulator, void* out) {
  const FinishState& s = *static_cast<const FinishState*>(state);
  const Item a = *static_cast<const Item*>(accumulator);
  Out* const result = static_cast<Out*>(out);
  const float v1 = __fsqrt_rn(a.r0);  // sqrt(a.r0)
  result->r0 = v1;
}
