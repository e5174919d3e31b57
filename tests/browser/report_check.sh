#!/usr/bin/env bash
# report_check.sh ORRERY page|accessibility SOURCES: makes results of every kind, their page, and checks it in Chromium.
# Exit code 77: skipped, since something is not installed.
set -euo pipefail
orrery="$1" part="$2" sources="$3"
here="$sources/tests/browser"

skip() {
    echo "skipped: $*; ./dev setup --with-browser installs it"
    exit 77
}
chromium="$(command -v chromium || command -v chromium-browser)" || skip "chromium is not installed"
command -v node >/dev/null || skip "nodejs is not installed"
axe="$sources/build/browser/node_modules/axe-core/axe.min.js"
if [[ "$part" == accessibility && ! -r "$axe" ]]; then skip "axe-core is not installed"; fi

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
cd "$work"
job=(--model gpt2 --seq 512 --implementation orrery)
"$orrery" scale "${job[@]}" --cluster dgx-h100 --gpus 4..16 --global-batch 64 --output scaling-h100.json >log
"$orrery" scale "${job[@]}" --cluster dgx-a100 --gpus 4..32 --global-batch 64 --output scaling-a100.json >log
"$orrery" capacity "${job[@]}" --cluster dgx-h100,dgx-a100 --tokens 1T --start 2027-01-04 --by 30d --global-batch 256 \
    --output capacity.json >log
"$orrery" plan "${job[@]}" --cluster dgx-h100 --gpus 8 --global-batch 64 --output a.plan.json >log
"$orrery" plan "${job[@]}" --cluster dgx-h100 --gpus 8 --global-batch 64 --tp 2 --output b.plan.json >log
"$orrery" whatif a.plan.json --set cluster.intra_node.bandwidth_gb_per_s_per_direction=0.1x,0.5x,1x,2x \
    --set training.micro_batch_size=1,2 --output whatif-numbers.json >log
"$orrery" whatif a.plan.json --set parallelism.data_parallel=ddp,zero1,zero3 --output whatif-names.json >log
"$orrery" whatif a.plan.json --tornado --output tornado.json >log
"$orrery" scale "${job[@]}" --cluster dgx-h100 --gpus 1..8 --global-batch 64 --by-technique --output techniques.json >log
"$orrery" diff a.plan.json b.plan.json --output diff.json >log
"$orrery" simulate b.plan.json --record record.json >log
"$orrery" simulate b.plan.json --explain --json >explanation.json
"$orrery" validate --rows "$sources/sim/published/data/nanotron-tp.json" --all --json >rows.json
results=(scaling-h100 scaling-a100 capacity whatif-numbers whatif-names tornado techniques diff record explanation rows)
"$orrery" report "${results[@]/%/.json}" --title '</script><b>Title & "more"</b>' --output page.html >log
node "$here/report_$part.mjs" "$chromium" "$work/page.html" "$axe"
