#!/bin/bash
# Starts training in a session of its own, so that it outlives the shell that started it; waits a while, then copies
# what there is. usage: lease.sh WAIT_SECONDS  (again with another number to go on waiting)
set -u
wait_s=$1
run=/tmp/openjev-run
if [ ! -e $run/pid ]; then
  mkdir -p $run/work $run/out
  cp -r server training .scratch $run/work/
  cd $run/work
  export PYTHONPATH=server:training PYTHONUNBUFFERED=1 TOKENIZERS_PARALLELISM=false
  setsid nohup python3 -m openjev_training train --prepared .scratch/prepared --warm .scratch/init.npz \
    --tokenizer server/openjev_server/models/nano --out $run/out training/plans/lease.json --workers 14 \
    > $run/stdout 2>&1 &
  echo $! > $run/pid
fi
for ((i = 0; i < wait_s; i++)); do
  kill -0 "$(cat $run/pid)" 2>/dev/null || break
  sleep 1
done
kill -0 "$(cat $run/pid)" 2>/dev/null && echo "still running" || echo "ended"
nvidia-smi --query-gpu=utilization.gpu,memory.used --format=csv,noheader
tail -c 3500 $run/stdout
cp $run/stdout "$OUT/stdout"
cp $run/out/log.jsonl "$OUT/log.jsonl"
for phase in held-out everything probe; do
  if [ -e $run/out/$phase/predictions.jsonl.xz ]; then
    cp $run/out/$phase/predictions.jsonl.xz "$OUT/$phase.predictions.jsonl.xz"
  fi
done
send=${2:-}
if [ -n "$send" ] && [ -e "$run/out/$send/model.q4.safetensors" ]; then
  split -b 15M -d -a 1 "$run/out/$send/model.q4.safetensors" "$OUT/$send.part"
fi
