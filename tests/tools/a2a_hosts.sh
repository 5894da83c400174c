#!/usr/bin/env bash
# Four "hosts" on one machine: network namespaces with host names of their own, joined by veth pairs
# and a bridge, every link shaped to 40 Mbit/s and that of node3 to 8 Mbit/s. Runs moe-a2a run
# over Open MPI's TCP between them.
#
#   a2a_hosts.sh MOE_A2A OUT_DIR RUN_OPTIONS...
#
# Writes OUT_DIR/report.json (rank 0's) and OUT_DIR/rank0.exit (rank 0's own exit code: after a lost
# rank mpirun ends with the lost rank's). Ends with mpirun's code, or with 77 and the reason when
# this machine does not allow it.
set -u
tool=$1 out=$2
shift 2

skip() { echo "skipped: $1"; exit 77; }
[ "$(id -u)" = 0 ] || skip "network namespaces need root"
for program in ip tc unshare mpirun; do
  command -v "$program" >/dev/null || skip "no $program on this machine"
done

prefix="moe$$"
# What was made goes in any case; a namespace takes its links with it.
cleanup() {
  for name in 1 2 3 4 switch; do ip netns del "$prefix-$name" 2>/dev/null; done
  rm -f "$out/agent.sh" "$out/rank.sh"
}
trap cleanup EXIT
ip netns add "$prefix-switch" 2>/dev/null || skip "no permission to make network namespaces"
ip netns exec "$prefix-switch" sh -c 'ip link add br0 type bridge && ip link set br0 up' ||
  skip "no bridge in a network namespace"

for i in 1 2 3 4; do
  rate=40mbit
  [ "$i" = 3 ] && rate=8mbit
  ip netns add "$prefix-$i" &&
    ip link add eth0 netns "$prefix-$i" type veth peer name "port$i" netns "$prefix-switch" ||
    skip "no veth pairs"
  ip netns exec "$prefix-$i" sh -c "ip link set lo up; ip addr add 10.77.0.$i/24 dev eth0;
    ip link set eth0 up; ip route add default via 10.77.0.254;
    tc qdisc add dev eth0 root tbf rate $rate burst 16kb limit 1mb" || skip "no tc tbf"
  ip netns exec "$prefix-switch" sh -c "ip link set port$i master br0; ip link set port$i up;
    tc qdisc add dev port$i root tbf rate $rate burst 16kb limit 1mb" || skip "no tc tbf"
done

# Open MPI starts its daemons through this in the place of ssh: AGENT [-x] ADDRESS COMMAND...
cat >"$out/agent.sh" <<EOF
#!/bin/sh
while [ "\${1#-}" != "\$1" ]; do shift; done
node=\${1##*.}; shift
exec ip netns exec $prefix-\$node unshare --uts sh -c "hostname node\$node; \$*"
EOF
# Each rank; the shell outlives the SIGTERM that follows a lost rank, to write the code down.
cat >"$out/rank.sh" <<EOF
#!/bin/sh
trap '' TERM
"\$@"
code=\$?
[ "\$OMPI_COMM_WORLD_RANK" = 0 ] && echo \$code >"$out/rank0.exit"
exit \$code
EOF
chmod +x "$out/agent.sh" "$out/rank.sh"

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_plm_rsh_agent="$out/agent.sh" OMPI_MCA_btl=self,tcp OMPI_MCA_pml=ob1
export OMPI_MCA_btl_tcp_if_include=eth0 OMPI_MCA_oob_tcp_if_include=eth0
ip netns exec "$prefix-1" unshare --uts sh -c 'hostname node1; exec "$@"' sh \
  timeout 100 mpirun --oversubscribe --bind-to none -np 4 \
  --host 10.77.0.1,10.77.0.2,10.77.0.3,10.77.0.4 \
  "$out/rank.sh" "$tool" run --backend mpi --format none -q --output "$out/report.json" "$@"
