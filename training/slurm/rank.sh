#!/bin/bash
# One rank of a run: its place among the others, its network, its core, its limits. srun starts it
# in each task with MASTER_ADDR, MASTER_PORT, NEURON_PORT, LOCAL_WORLD_SIZE, NETWORK, KIND and
# CACHE set; the arguments are the command to run.
set -euo pipefail

# Slurm hands on the soft limit of the shell that submitted the job, which is 1024 as a rule.
ulimit -Sn "$(ulimit -Hn)"

export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID
export PYTHONUNBUFFERED=1 PYTHONFAULTHANDLER=1 # the second: SIGABRT shows where a rank hangs

if [[ $NETWORK == efa ]]; then
    export FI_PROVIDER=efa FI_EFA_USE_DEVICE_RDMA=1 FI_EFA_FORK_SAFE=1
fi
if [[ $KIND == trainium ]]; then
    export NEURON_RT_ROOT_COMM_ID=$MASTER_ADDR:$NEURON_PORT NEURON_RT_EXEC_TIMEOUT=600
    export NEURON_CC_FLAGS="${NEURON_CC_FLAGS:-} --model-type=transformer --retry_failed_compilation"
    # torch-xla learns core, rank and world size from torchrun's variables when this one is there.
    export TORCHELASTIC_RUN_ID=$SLURM_JOB_ID
    export XLA_TRANSFER_SEED_ASYNC=1 ALLREDUCE_GRADIENTS_BUCKET_SIZE_MB=512 MALLOC_ARENA_MAX=128
fi
export NEURON_COMPILE_CACHE_URL=$CACHE

echo "rank $RANK of $WORLD_SIZE on $SLURMD_NODENAME: $NETWORK, first $MASTER_ADDR:$MASTER_PORT, $(ulimit -Sn) open files"
exec "$@"
