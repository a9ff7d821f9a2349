# What start and stop share. Wants $here and $port.
run=$(cd "$here/../../.." && pwd)/.cache/dynalite
pidfile=$run/$port.pid
log=$run/$port.log

answers() {
	timeout 2 bash -c "exec 3<>/dev/tcp/127.0.0.1/$port && printf 'GET / HTTP/1.0\r\n\r\n' >&3 && grep -q 'healthy: dynamodb' <&3" 2>/dev/null
}
