"""Named worlds: workload, cluster, speed, contention, cadence and costs in one small file."""
