#!/usr/bin/env bash
# compute-sanitizer's memcheck, initcheck and racecheck over three training steps of tiny models and over the ops' tests.
set -euo pipefail

usage() {
  cat <<'EOT'
usage: tools/sanitize_gpu.sh [options] [BUILD]     BUILD: folder of mantissa, mantissa_cuda.so and gpu_test (build)

  --tool=NAME     memcheck, initcheck or racecheck alone
  --only=REGEX    only the cases whose name matches
  --jobs=N        cases at a time on the one GPU (1)
  --seconds=N     limit of a case (600)
  --logs=FOLDER   where each case's output goes (a temporary folder, which stays if something is found)
  --list          print the cases and what is left out

Exit 0: all clean; 1: a finding, a case that failed or one over its limit; 2: it cannot run here.
COMPUTE_SANITIZER names the program where neither PATH nor /usr/local/cuda/bin has it or where another one is wanted.
EOT
}
die() { printf 'sanitize_gpu: %s\n' "$*" >&2; exit 2; }

build=build tools="racecheck memcheck initcheck" only=. jobs=1 seconds=600 logs="" list=0
for argument in "$@"; do
  case "$argument" in
    --tool=memcheck | --tool=initcheck | --tool=racecheck) tools=${argument#*=} ;;
    --only=*) only=${argument#*=} ;;
    --jobs=*) jobs=${argument#*=} ;;
    --seconds=*) seconds=${argument#*=} ;;
    --logs=*) logs=${argument#*=} ;;
    --list) list=1 ;;
    -h | --help) usage; exit 0 ;;
    -*) usage >&2; exit 2 ;;
    *) build=$argument ;;
  esac
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# --- cases --------------------------------------------------------------------------------------------------------------
# Lines "NAME OPTIONS : COMMAND"; options name the kernels that a tool looks at, of mangled names, and the first launches.
# memcheck sees the libraries' kernels too, which work on the project's memory; initcheck and racecheck the project's own,
# by their namespace: shared memory is a kernel's own, and device memory is zeroed as it is allocated.
readonly OWN="--kernel-name kns=mantissa"
cases() {
  local tool=$1 options="" model attention op
  case $tool in
    initcheck)
      options=$OWN
      if from 2025.4; then options+=" --initcheck-address-space all"; fi
      ;;
    racecheck) options=$OWN ;;
  esac
  for model in qwen3 gpt2; do
    for attention in own cudnn; do
      echo "train-$model-$attention $options : env MANTISSA_ATTENTION=$attention" \
        "$build/mantissa train $work/$model.yaml --run.dir=$work/$tool-$model-$attention"
    done
  done
  for model in qwen3-128 qwen3-96 qwen3-72 qwen3-fp8 qwen3-blockwise qwen3-nvfp4; do
    echo "train-$model $options : env MANTISSA_ATTENTION=own" \
      "$build/mantissa train $work/$model.yaml --run.dir=$work/$tool-$model"
  done
  if [[ $tool == racecheck ]]; then
    race_cases | sed "s|: |: $build/gpu_test --gtest_filter=|"
    return
  fi
  # One of the GEMMs' tests wants a rate that no tool leaves.
  for op in Activation Adamw AttentionCudnn CachedAttention DelayedScaling Elementwise Embedding Fp8Cast Gemm Loss \
    Norm OwnAttention.*:GpuFusedAttention Quantize Rope ValuesCast; do
    echo "${op%%.*} $options : $build/gpu_test --gtest_filter=Gpu$op.*-GpuGemm.SaysWhichAlgorithmAndHowFast"
  done
}
# Kernels that use shared memory, each of their variants; racecheck is slow, so of large tests it takes the first launches.
race_cases() {
  cat <<EOT
Activation $OWN : GpuActivation.*-*Casts*
Activation-cast --kernel-name regex=(swiglu|gelu)_[a-z_]*cast -c 24 : GpuActivation.Casts*
DelayedScaling $OWN -c 60 : GpuDelayedScaling.*
Quantize --kernel-name regex=(quantize_cast|amax)_kernel -c 60 : GpuQuantize.BytesOf*:GpuQuantize.Rotated*
Fp8Cast --kernel-name regex=fp8_(tensor|block)_cast -c 90 : GpuFp8Cast.BytesOf*
ValuesCast --kernel-name regex=(values_cast|both_amaxes)_kernel -c 90 : GpuValuesCast.Stands*
Adamw $OWN : GpuAdamw.*
Elementwise $OWN : GpuElementwise.*
Rope $OWN : GpuRope.*
Norm-forward $OWN -c 200 : GpuNorm.Forward*
Norm-backward $OWN -c 200 : GpuNorm.Backward*
Embedding $OWN -c 100 : GpuEmbedding.Backward*
CachedAttention $OWN -c 200 : GpuCachedAttention.Scratch*
CachedAttention-plain --kernel-name regex=cached_attention_split_plain -c 20 : GpuCachedAttention.Matches*
OwnAttention --kernel-name regex=attention_(fwd|bwd|list)_[a-z_]*(hopper|fused|tiles) -c 60 : GpuOwnAttention.Matches*
OwnAttention-fused --kernel-name regex=attention_(fwd|bwd|list)_[a-z_]*(hopper|fused|tiles) -c 60 : GpuFusedAttention.Matches*:GpuOwnAttention.Stays*
OwnAttention-warps --kernel-name regex=attention_[a-z_]*_mma -c 20 : GpuOwnAttention.Matches*:GpuOwnAttention.TakesUnaligned*
OwnAttention-64 --kernel-name regex=attention_(fwd|bwd)_[a-z_]*plain.*Li64E -c 9 : GpuOwnAttention.Matches*
OwnAttention-128 --kernel-name regex=attention_(fwd|bwd)_[a-z_]*plain.*Li128E -c 3 : GpuOwnAttention.Stays*
OwnAttention-256 --kernel-name regex=attention_(fwd|bwd)_[a-z_]*plain.*Li256E -c 6 : GpuOwnAttention.Matches*
Loss --kernel-name kns=loss_cu -c 60 : GpuLoss.Agrees*
Loss-f32 --kernel-name regex=loss_cu.*kernelIf -c 30 : GpuLoss.Agrees*
Loss-clusters-of-2 --kernel-name regex=loss_cu.*Li2E(Lb1E)?E -c 6 : GpuLoss.Agrees*
Loss-clusters-of-4 --kernel-name regex=loss_cu.*Li4E(Lb1E)?E -c 6 : GpuLoss.Agrees*
Loss-clusters-of-8 --kernel-name regex=loss_cu.*Li8E(Lb1E)?E -c 6 : GpuLoss.Agrees*
EOT
}
# By its notes the first release with the mends that are needed: earlier ones take a barrier of some of a block's warps
# for one of all, or lose count of an mbarrier's bytes, and report hazards that are not there.
readonly RACECHECK_FROM=2026.3
from() { [[ $(printf '%s\n' "$1" "$version" | sort -V | head -1) == "$1" ]]; }

# Packed rows with QK-norm and weights in BF16, and learned positions with master weights and moments of 8 bits.
write_configs() {
  awk 'BEGIN { for (s = 9; i < 40000; ++i) { s = (s * 1664525 + 1013904223) % 4294967296
    printf "%c%s", 97 + int(s / 1048576) % 8, i % 97 == 96 ? "\n\n" : "" } }' >"$work/text.txt"
  cat >"$work/qwen3.yaml" <<EOT
run: {name: qwen3, seed: 42}
device: {name: cuda, search: false}
model: {arch: qwen3, vocab_size: 256, hidden_size: 128, intermediate_size: 256, num_hidden_layers: 2,
  num_attention_heads: 4, num_key_value_heads: 2, head_dim: 64, tie_word_embeddings: true}
data: {train: $work/text.txt, sequence_length: 128, packing: best_fit}
batch: {tokens: 1024, micro_batch: 4}
precision: {weights: bf16, recipe: bf16}
train: {steps: 3, eval_rows: 2, save_weights: false}
EOT
  local width
  for width in 128 96 72; do
    sed "s/name: qwen3,/name: qwen3-$width,/; s/head_dim: 64/head_dim: $width/" "$work/qwen3.yaml" >"$work/qwen3-$width.yaml"
  done
  local recipe
  for recipe in fp8:fp8-delayed blockwise:fp8-blockwise nvfp4:nvfp4; do
    sed "s/name: qwen3,/name: qwen3-${recipe%%:*},/; s/recipe: bf16/recipe: ${recipe#*:}/" "$work/qwen3.yaml" \
      >"$work/qwen3-${recipe%%:*}.yaml"
  done
  cat >"$work/gpt2.yaml" <<EOT
run: {name: gpt2, seed: 42}
device: {name: cuda, search: false}
model: {arch: gpt2, vocab_size: 256, hidden_size: 128, intermediate_size: 512, num_hidden_layers: 2,
  num_attention_heads: 2, num_key_value_heads: 2, max_position_embeddings: 128, tie_word_embeddings: true}
data: {train: $work/text.txt, sequence_length: 128, packing: truncate}
batch: {tokens: 1024, micro_batch: 4}
optimizer: {state: 8bit}
precision: {weights: fp32, recipe: bf16}
train: {steps: 3, eval_rows: 2, save_weights: false}
EOT
}

# --- runs ---------------------------------------------------------------------------------------------------------------
# run TOOL PORT NAME OPTIONS COMMAND: one line on stdout, and a file beside the log where it is not clean.
run() {
  local tool=$1 name=$3 log=$logs/$1-$3.log begin=$SECONDS status=0 verdict=clean kernels
  kernels=$(sed -n 's/.*--kernel-name [a-z]*=\([^ ]*\).*/\1/p' <<<"$4")
  set -f  # filters hold stars
  # shellcheck disable=SC2086
  timeout -k 5 "$seconds" "$sanitizer" --tool "$tool" --port "$2" --error-exitcode 99 $4 $5 >"$log" 2>&1 </dev/null ||
    status=$?
  set +f
  if ((status == 124 || status == 137)); then
    verdict="over $seconds s"
  elif ((status != 0)) || ! grep -Eaq 'SUMMARY: 0 (errors|hazards)' "$log" || grep -aq 'Running 0 tests' "$log"; then
    verdict="exit $status: $(grep -aE 'SUMMARY|FAILED|Error|mantissa:' "$log" | tail -1 | cut -c1-160)"
  fi
  if [[ -n $kernels ]] && ! tr '\0' '\n' <"$build/mantissa_cuda.so" | grep -aE -- "$kernels" >/dev/null; then
    verdict="no kernel is called $kernels"
  fi
  [[ $verdict == clean ]] || : >"$logs/$tool-$name.found"
  printf '%-10s %-22s %4d s  %s\n' "$tool" "$name" $((SECONDS - begin)) "$verdict"
}

sanitizer=${COMPUTE_SANITIZER:-$(command -v compute-sanitizer || echo /usr/local/cuda/bin/compute-sanitizer)}
version=$("$sanitizer" --version 2>/dev/null | sed -n 's/^Version \([0-9.]*\).*/\1/p') || true
if ((!list)); then
  [[ -n $version ]] || die "no compute-sanitizer ($sanitizer); it comes with CUDA, or: pip install nvidia-cuda-sanitizer-api"
  for file in mantissa mantissa_cuda.so gpu_test; do
    [[ -e $build/$file ]] || die "$build/$file is not there: build mantissa and gpu_test where nvcc is"
  done
  [[ $work$build != *[[:space:]]* ]] || die "a folder's name holds a space: $work, $build"
  export OMP_WAIT_POLICY=passive XDG_CACHE_HOME=$work
  ((jobs == 1)) || export OMP_NUM_THREADS=$((($(nproc) + jobs - 1) / jobs))
  write_configs
  own_logs=$([[ -n $logs ]] || echo 1)
  [[ -n $logs ]] || logs=$(mktemp -d)
  mkdir -p "$logs"
  rm -f "$logs"/*.found
  printf 'Compute Sanitizer %s, %s\n' "$version" "$("$build/mantissa" --version 2>/dev/null | head -1)"
fi

port=51000 running=0
for tool in $tools; do
  if [[ $tool == racecheck ]] && ! from "$RACECHECK_FROM"; then
    echo "racecheck  left out: Compute Sanitizer ${version:-?} is older than $RACECHECK_FROM and reports what is not there"
    continue
  fi
  while read -r line; do
    name=${line%% *} options=${line#* } command=${line#*: }
    [[ $name =~ $only ]] || continue
    if ((list)); then
      printf '%-10s %s\n' "$tool" "$line"
      continue
    fi
    ((running < jobs)) || { wait -n; running=$((running - 1)); }
    run "$tool" $((port += 20)) "$name" "${options%%: *}" "$command" &
    running=$((running + 1))
  done < <(cases "$tool")
done
[[ $tools != *racecheck* ]] || echo "racecheck  left out: kernels of GEMMs and of cuDNN's attention, which use no shared memory"
wait
((!list)) || exit 0
if compgen -G "$logs/*.found" >/dev/null; then
  echo "not clean; outputs in $logs"
  exit 1
fi
[[ -z $own_logs ]] || rm -rf "$logs"
echo clean
