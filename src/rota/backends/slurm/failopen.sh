#!/bin/sh
# Give jobs back to Slurm when rota is gone.
#
#     failopen.sh [--loop SECONDS] HEARTBEAT TIMEOUT_S PARTITION[,PARTITION...]
#
# If the heartbeat is missing, garbage, or further than TIMEOUT_S from now, each pending job of these
# partitions that rota holds (priority 0, admin comment "rota:held") is released: Slurm starts it as
# if there were no rota. First the node list that rota gave it is cleared, or set to the user's own,
# which rota noted as "rota:held nodelist=n1,n2"; and the delay after a requeue is dropped. At last
# the admin comment becomes "rota:let-go". Jobs that rota has released already, but that still wait
# for the nodes it gave them, get the same: these may be down for long. Jobs held by users or
# administrators stay held. The latter are those with the reason JobHeldAdmin, so rota itself must
# hold jobs by `scontrol uhold` or `requeuehold`: a plain `hold`, or Priority=0, would look like an
# administrator's.
#
# One check, then it ends: 0 if all is well, 1 if something failed and the next check has to try
# again, 2 if it was called wrongly. With --loop it checks for ever. It must run as root, SlurmUser or
# an operator of Slurm, and needs only sh, awk, date, squeue and scontrol. No file is written.
#
# Words that users choose (names, comments) are never read, but for one column of a comment, cut to
# the 14 characters of "rota:user-held"; that is too short to contain a line about another job.

set -u
LC_ALL=C
SLURM_TIME_FORMAT=%s   # times as seconds, to compare them
export LC_ALL SLURM_TIME_FORMAT
unset SQUEUE_FORMAT SQUEUE_FORMAT2 SQUEUE_STATES SQUEUE_PARTITION SQUEUE_USERS SQUEUE_ACCOUNT \
   SQUEUE_NAMES SQUEUE_QOS SQUEUE_LICENSES SQUEUE_SORT SLURM_CLUSTERS
trap '' PIPE

# Requeued jobs wait for two minutes or so. A time further away is one that the user has asked for.
REQUEUE_DELAY_S=600

say() { printf 'failopen: %s\n' "$*" >&2 || :; }

usage() {
   say "usage: failopen.sh [--loop SECONDS] HEARTBEAT TIMEOUT_S PARTITION[,PARTITION...]"
   exit 2
}

is_number() {
   case $1 in '' | *[!0-9]* | 0* | ????????????*) return 1 ;; esac
}

is_fresh() {
   [ -f "$heartbeat" ] || return 1
   beat=
   { IFS= read -r beat <"$heartbeat"; } 2>/dev/null
   beat=${beat%%.*}
   is_number "$beat" || return 1
   age=$(($(date +%s) - beat))
   [ "$age" -le "$timeout" ] && [ "$age" -ge "-$timeout" ]
}

# Lines of "RECORD UNIT LIST TIME HOLD" about the jobs that rota holds or has placed. A record is
# what Slurm keeps, the unit its name for scontrol: all tasks of an array that have not been looked
# at are one record, but its number alone would also mean the tasks that somebody has split off and
# held.
# squeue must list array tasks one by one (-r), or it mixes up the reasons of an array's records.
held_jobs() {
   by_user=$(squeue -h -r -t PENDING --partition="$partitions" -o '%A %14k') || return 1
   listed=$(squeue -h -r -t PENDING --partition="$partitions" \
      -O 'JobID:20,JobArrayID:40,PriorityLong:20,StartTime:20,admin_comment:64,Reason:64') || return 1
   {
      printf '%s\n' "$by_user" | awk '$2 == "rota:user-held" { print "user", $1 }'
      printf '%s\n' "$listed"
   } | awk -v late="$(($(date +%s) + REQUEUE_DELAY_S))" '
      function flush(record) {
         if (count[record]) print record, base[record] "_[" tasks[record] "]", kind[record]
         count[record] = 0
      }
      $1 == "user" { user[$2] = 1; next }
      $1 in user || $5 != "rota:held" || /JobHeldAdmin/ { next }
      $3 != "0" && $6 !~ /^nodelist=/ { next }
      {
         hold = $3 == "0" ? "held" : "released"
         list = $6 ~ /^nodelist=./ ? "own" : "none"
         time = $4 ~ /^[0-9]+$/ && $4 + 0 > late ? "later" : "now"
      }
      $2 ~ /^[0-9]+_[0-9]+$/ {
         split($2, part, "_")
         base[$1] = part[1]
         tasks[$1] = count[$1] ? tasks[$1] "," part[2] : part[2]
         kind[$1] = list " " time " " hold
         if (++count[$1] == 100) flush($1)
         next
      }
      { print $1, $2, list, time, hold }
      END { for (record in count) flush(record) }
   '
}

# The node list that the user of a record asked for; nothing if it is not a plain one.
own_nodes() {
   squeue -h -r -t PENDING -j "$1" -O 'JobID:20,admin_comment:16000' | awk -v record="$1" '
      $1 == record && $2 == "rota:held" && sub(/^nodelist=/, "", $3) {
         if ($3 !~ /[^][A-Za-z0-9._,-]/ && length($0) < 16020 - 1) print $3
         exit
      }
   '
}

# Each step can be done twice. The mark goes last: until then the next check tries again.
let_go() {
   record=$1 unit=$2 nodes=
   if [ "$5" = released ]; then
      # A list of nodes would shrink a running job to these. One that is held cannot begin to run.
      scontrol uhold "$unit" || return 1
      pending=$(squeue -h -t PENDING -j "$record" -o %A) || pending=
      [ -n "$pending" ] || { scontrol release "$unit"; return; }
   fi
   case $unit in
   *+0) scontrol release "$record" ;; # all of a heterogeneous job; no list of nodes can be set
   *+*) return 0 ;;
   *)
      if [ "$3" = own ]; then
         nodes=$(own_nodes "$record")
         [ -n "$nodes" ] || say "job $unit: its own node list cannot be read, it gets none"
      fi
      # If the user's nodes are gone, the job waits without them rather than for ever.
      change "$4" "ReqNodeList=$nodes" || change "$4" "ReqNodeList=" \
         || say "job $unit: its node list stays as it is"
      scontrol release "$unit"
      ;;
   esac || return 1
   case $unit in *+0) unit=$record ;; esac
   scontrol update "jobid=$unit" AdminComment=rota:let-go
}

# Right after a requeue a node takes a new start for the old one and fails it; in 2 s no more.
change() {
   if [ "$1" = now ]; then
      scontrol update "jobid=$unit" "$2" StartTime=now+2
   else
      scontrol update "jobid=$unit" "$2"
   fi
}

check() {
   is_fresh && return 0
   found=$(held_jobs) || { say "Slurm does not answer; the next check tries again"; return 1; }
   [ -n "$found" ] || return 0
   say "no heartbeat at $heartbeat within $timeout s: jobs go back to Slurm"
   printf '%s\n' "$found" | {
      failed=0
      while read -r record unit list time hold; do
         if is_fresh; then
            say "the heartbeat is back; the other jobs stay"
            break
         fi
         let_go "$record" "$unit" "$list" "$time" "$hold" </dev/null >/dev/null || {
            failed=1
            say "job $unit could not be released; the next check tries again"
         }
      done
      exit "$failed"
   }
}

every= heartbeat= timeout= partitions=
while [ $# -gt 0 ]; do
   case $1 in
   --loop)
      [ $# -ge 2 ] && is_number "$2" || usage
      every=$2
      shift
      ;;
   -*) usage ;;
   *)
      if [ -z "$heartbeat" ]; then heartbeat=$1
      elif [ -z "$timeout" ]; then timeout=$1
      elif [ -z "$partitions" ]; then partitions=$1
      else usage
      fi
      ;;
   esac
   shift
done
[ -n "$partitions" ] && is_number "$timeout" || usage

check
code=$?
while [ -n "$every" ]; do
   sleep "$every"
   check
done
exit "$code"
