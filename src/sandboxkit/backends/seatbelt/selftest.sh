# What a box of Seatbelt must not allow beyond the shared attack: moves, links and other
# spellings. Prints key=value lines. Its working directory is writable, in/secret in it is
# denied. Arguments: a directory outside, a port of the loopback that listens.
outside=$1 port=$2
PATH=/usr/bin:/bin:/usr/sbin:/sbin

echo x 2>/dev/null >allowed && read -r line 2>/dev/null <allowed && echo wrote=yes

read -r line 2>/dev/null <"$outside/canary" && echo "outside=$line"
echo x 2>/dev/null >"$outside/written"
ln "$outside/canary" linked 2>/dev/null && echo linked=yes && echo x 2>/dev/null >>linked

read -r line 2>/dev/null <in/secret/key && echo "secret=$line"
echo x 2>/dev/null >in/secret/new && echo written=in/secret/new
mv in elsewhere 2>/dev/null && echo moved=in && mv elsewhere in
mv in/secret in/open 2>/dev/null && echo moved=in/secret && mv in/open in/secret
mkdir replacement && mv replacement in/secret 2>/dev/null && echo moved=replacement
for hooks in .git/hooks .GIT/hooks; do
    mkdir -p "$hooks" 2>/dev/null && echo x 2>/dev/null >"$hooks/pre-commit" && echo "hook=$hooks"
done
mkdir -p full/hooks && mv full .git 2>/dev/null && echo moved=full

reach() {
    bash --noprofile --norc -c 'exec 3<>"/dev/tcp/127.0.0.1/$0"' "$1" 2>/dev/null
}
proxy=${http_proxy:-}
if [ -n "$proxy" ] && command -v bash >/dev/null 2>&1; then
    proxy=${proxy##*:} proxy=${proxy%%/*}
    reach "$proxy" && echo proxy=open || echo proxy=closed
    reach "$port" && echo port=made
fi
echo done=yes
