#!/bin/sh
# Install Debian's Slurm and munge, for `make test-slurm`; nothing to do where they are.
set -eu
PATH=$PATH:/usr/sbin:/sbin

missing=
for program in slurmctld slurmd slurmrestd munged squeue scontrol; do
   command -v "$program" >/dev/null || missing="$missing $program"
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null; then
   echo "There is no$missing here, and no apt-get to install it with: install Slurm 22.05 or later" \
      "(slurmctld, slurmd, slurmrestd and its commands, with lua) and munge yourself." >&2
   exit 1
fi
as_root=
if [ "$(id -u)" != 0 ]; then
   if ! command -v sudo >/dev/null; then
      echo "There is no$missing here; run this as root: $0" >&2
      exit 1
   fi
   as_root=sudo
fi
echo "Installing Slurm for its tests (once) …"
$as_root apt-get update -qq
$as_root env DEBIAN_FRONTEND=noninteractive \
   apt-get install -y -qq --no-install-recommends slurm-wlm slurmrestd munge
