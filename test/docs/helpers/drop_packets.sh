# A page runs `% setup: $HELPERS/drop_packets.sh HOST SOURCE4 SOURCE6 &` before a command on hosts in a box: 5 s later,
# HOST drops all packets from these addresses, for 20 s.
sleep 5
ssh "$1" "nft -f -; sleep 20; nft delete table inet dropped" <<END
table inet dropped {
  chain input {
    type filter hook input priority 0
    ip saddr $2 drop
    ip6 saddr $3 drop
  }
}
END
