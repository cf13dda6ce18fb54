#!/usr/bin/env bash
# Runs the tests of cutroom. The last line has the elapsed time and the processor time; noise changes the latter less.
#
#   scripts/test.sh        what `make test` runs
#   scripts/test.sh long   what `make test-long` runs: minutes of faults and crashes
#   scripts/test.sh s3     what `make test-s3` runs: everything that stores objects, on another S3 server
#   scripts/test.sh compile   what all of them run first, while packages are installed
#
# What runs where, and why:
#
# unit       The tests beside the code, once. Packages that own rows run theirs
#            on both databases.
# waiting    The unit tests that wait for leases and vendors, many at once.
# small, large, mixed
#            The black-box suite of test/, which speaks HTTP to the real program, in
#            three shapes of the service:
#              small  SQLite, a folder, one process: every test but those of large_only
#                     below. A test that calls sameInEveryShape runs in this shape
#                     alone: it is the cheapest.
#              large  PostgreSQL, a real S3 server, two replicas: all other tests.
#              mixed  PostgreSQL, a folder, one process: the few tests in which rows
#                     and files must agree, and those that need PostgreSQL alone.
#                     Only make test-long runs it.
# manifests  The tests of deploy/kubernetes, a module of its own.
#
# Four of these run at a time, because many tests wait: for leases to run out, for
# time-outs, for retries.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
export TEST_BEGAN=${TEST_BEGAN:-$(date +%s)}

# Compile in the same way as `make build`, so that nothing is compiled twice.
export CGO_ENABLED=0 GOFLAGS=-trimpath

# Packages whose tests spend most of their time waiting for leases to run out.
waiting=(cutroom/internal/domain/separation cutroom/internal/work/job cutroom/internal/domain/render)

# Packages whose tests make or measure films, the slowest first. They also run on Debian 13.
films=(internal/film/engine test internal/film/media internal/film/audio internal/sandbox/demo)

# The tests that take the most processor time. Cheaper tests guard the same facts, though less closely, so make test
# leaves these out and make test-long runs them. CI runs both. These are arguments of go test -skip and -run: a test that
# is not named here runs in make test.
later=(
	# The studio: each part takes 5 to 20 s of Chromium's time. make test makes a film by mouse and by touch, and compares
	# two previews with their films.
	'TestEditing/^(two|projects|what|a_voice|a_segment|a_cut|cuts)' 'TestPreviewIsTheFilm/^(cuts|trimmed|upright|turned)'
	'TestPreviewSoundsLikeTheFilm/^(far|backwards)' TestPreviewIsOnTime TestPreviewGoesOn 'TestStudio/^the_network'
	# The engine: 3 to 9 s each. Debian 13 runs the whole package in make test-long as well.
	TestChangedEndsEncodeTheirPartsAlone TestClipWithoutAKeyFrameAtItsStart TestPicturesThatCannotBeShown TestRottenDataIsNoticed
	TestVariableRateShowsTheVisibleFrameFirst TestLateAndShortVideo TestLargePicturesFitIntoMemory
	TestSoundStaysInSyncInScatteredSegments TestInterlacedIsWoven TestLongSegmentsAreMadeInPieces
	TestWholeDemo # make test runs the pages of the sandbox, which make a film as well
)
# Likewise in the shape small. The engine's tests check the same pictures more closely, TestCorpus hears the same sounds
# as music, the shape large has the crashes of uploaded files, and make test-long has the object store's faults at every
# step.
later_small=(
	TestKillInTheMiddleOfASeparationByReference TestSeparationOnABadLine TestAnOutageOfTheStoreIsReportedAndPasses
	TestRenderOfRealClips TestRenderBothEnds TestRenderCanvasSizeAndRate TestRenderTurnsMirrorsAndCrops TestRenderMovesSmoothly
	TestAPIDocsOnlyWhenEnabled TestSoundThatChangesEverywhere
)
# Tests that make test runs in the shape large alone: SQLite's statements are those of the packages' own tests.
large_only=(
	TestKillInTheMiddleOfASeparation TestAccountDeletionStopsRunningJobs TestAccountDeletionLeavesNothing TestIdempotentSeparation
	TestSeparationHistory TestRenderHistory TestTenancy TestEventsOutliveACrash TestRenderStemReferences TestRenderInputs TestStemDownload
	TestAStoppingServiceAnswersWaitingRequests TestWaitingForASeparation TestWaitingForARender
)
any() { local IFS='|'; echo "$*"; }

step() { printf '\n== %s (%ss) ==\n' "$*" $(($(date +%s) - TEST_BEGAN)); }

# spend sets cpu to the user and system time, in seconds, of all processes that this shell has waited for. Noise changes
# it less than the time on the clock. In a subshell it would be 0.
spend() {
	times >"$root/.tools/times.$$"
	cpu=$(awk -F '[ms ]+' 'NR == 2 { printf "%d", 60 * $1 + $2 + 60 * $3 + $4 }' "$root/.tools/times.$$")
	rm "$root/.tools/times.$$"
}

# memory keeps temporary files in memory if there are gigabytes to spare: a disk's file
# system spends minutes of processor time on databases, objects and binaries.
memory() {
	local room
	room=$(df --output=avail /dev/shm | tail -n 1) || return 0
	[ "$room" -gt 6000000 ] && [ "$(awk '/^MemAvailable/ { print $2 }' /proc/meminfo)" -gt 8000000 ] || return 0
	TMPDIR=$(mktemp -d /dev/shm/cutroom-test.XXXXXX)
	export TMPDIR
	trap 'rm -rf "$TMPDIR"' EXIT
	chmod 1777 "$TMPDIR" # other users write here, such as PostgreSQL
}

# Flags, then -- and packages. Vetting is a step of its own. Linking 70 programs takes 40 % less without the tables
# of a debugger; stack traces do not need them.
run() { scripts/gotest.sh -vet=off -ldflags='-s -w' -timeout 30m "$@"; }
large() { CUTROOM_TEST_DB=postgres CUTROOM_TEST_BUCKET=1 CUTROOM_TEST_REPLICAS=2 run -count=1 "$@"; }
mixed() { CUTROOM_TEST_DB=postgres run -count=1 "$@"; }
small() { CUTROOM_TEST_DB=sqlite run -count=1 "$@"; }

name=${1-all} # in a function, $1 is another
case $name in
unit | waiting | large | small | later | manifests) trap 'spend && step "$name took $cpu s of processor time"' EXIT ;;
esac

case $name in
compile)
	# Vetting compiles everything but the tests themselves. On an empty cache it needs two cores for two minutes,
	# in which the installation of packages mostly waits.
	step "format"
	test -z "$(gofmt -l clients cmd deploy internal test | tee -a /dev/stderr)"
	step "build and vet"
	MAKEFLAGS= make --no-print-directory build
	go vet ./...
	go -C deploy/kubernetes vet ./...
	# Compiles the tests, without linking them.
	go list -test -export -deps ./... >/dev/null
	go -C deploy/kubernetes list -test -export -deps ./... >/dev/null
	go tool -modfile="$root/mk/test.mod" gotestsum --version
	;;
all | long | s3)
	[ "${1-}" != s3 ] || export S3_SERVER=minio
	[ -n "${COMPILED-}" ] || "$0" compile
	export CUTROOM_BIN=$root/bin/cutroom PATH=$(scripts/fast-ffmpeg.sh)$PATH
	memory
	# Keep the clips that tests made in the last month.
	export CUTROOM_TEST_FIXTURES=$root/.tools/fixtures
	mkdir -p "$CUTROOM_TEST_FIXTURES"
	find "$CUTROOM_TEST_FIXTURES" -mindepth 1 -maxdepth 1 -mtime +30 -exec rm -rf {} +
	# One PostgreSQL cluster and one S3 server for all of it.
	scripts/s3.sh run go run ./internal/testkit/dbtest/withpg "$0" "${1-all}-inside"
	spend
	step "passed with $cpu s of processor time"
	;;
all-inside)
	# The longest first. A failure of one lets the others end: xargs then fails.
	printf '%s\n' large small unit waiting manifests | xargs -P 4 -n 1 "$0"
	;;
unit)
	step "unit tests"
	# The slowest first.
	slow=(cutroom/internal/{film/engine,api/httpapi,sandbox/player} cutroom/cmd/{sandbox,cutroom} cutroom/internal/sandbox/demo cutroom/internal/testkit/simulation)
	run -p 3 -skip "$(any "${later[@]}")" -- "${slow[@]}" $(go list ./clients/... ./cmd/... ./deploy/... ./internal/... | grep -vxF "$(printf '%s\n' "${slow[@]}" "${waiting[@]}")")
	;;
waiting)
	step "unit tests that mostly wait"
	run -p 3 -parallel=8 -- "${waiting[@]}"
	;;
large)
	step "black box: large"
	CUTROOM_TEST_SHAPE_ONLY=1 large -- ./test
	;;
small)
	step "black box: small"
	small -skip "^($(any "${later_small[@]}" "${large_only[@]}"))\$" -- ./test
	;;
later)
	step "what make test leaves out"
	small -run "^($(any "${later_small[@]}" "${large_only[@]}"))\$" -- ./test
	run -count=1 -run "$(any "${later[@]}")" -- ./internal/film/engine ./internal/sandbox/{player,demo}
	"$0" mixed
	;;
mixed)
	step "black box: mixed"
	mixed -run 'AccountDeletion|StemDownload|RenderInputs|RenderDownload|SupportExports|OutageOfTheDatabase' -- ./test
	;;
manifests)
	step "the manifests of Kubernetes"
	go -C deploy/kubernetes test -vet=off -ldflags='-s -w' -count=1 ./... # flags as in run
	;;
s3-inside)
	step "the object store on MinIO"
	run -count=1 -- ./internal/storage/objectstore ./internal/work/installation
	large -run 'ABucketSurvives|Asset|RenderV3|UploadURL|Machine|EitherReplica|ReplicasShare|Restore|StemDownload|RenderInputs|Peaks|Poster' -- ./test
	;;
long-inside)
	# The simulation uses the processor time that the others leave: they mostly wait.
	printf '%s\n' trixie swift faults later crashes simulation frames-and-clients | xargs -P 4 -n 1 "$0"
	;;
trixie)
	# Versions of ffmpeg differ in what they do to pictures.
	step "films on Debian 13, with its ffmpeg"
	if [ "$(id -u)" != 0 ]; then
		echo "SKIPPED: films on Debian 13: only root can set up its system"
		exit 0
	fi
	[ -n "${CUTROOM_BIN-}" ] || make --no-print-directory build
	export CUTROOM_BIN=$root/bin/cutroom
	binaries=$root/.tools/trixie
	mkdir -p "$binaries"
	for package in "${films[@]}"; do
		go test -c -o "$binaries/$(basename "$package").test" "./$package"
	done
	FRESH_PACKAGES="ffmpeg espeak-ng" FRESH_FOLDERS="$root ${CUTROOM_MEDIA_DIR-}" \
		CUTROOM_TEST_DB=sqlite CUTROOM_TEST_FIXTURES='' scripts/fresh.sh trixie "$root/scripts/test.sh" trixie-inside
	;;
trixie-inside)
	ffmpeg -version | head -n 1
	memory
	printf '%s\n' "${films[@]}" | xargs -P 2 -n 1 "$0" trixie-package
	;;
trixie-package)
	cd "$root/$2"
	only=
	[ "$2" != test ] || only='Render|Film|Frame|Join|Dissolve|Fade|Canvas|Poster|Transition|Bgm|Directive|Loud|Duck|Segment|Corpus|SoundThatChanges'
	echo "== $2 =="
	"$root/.tools/trixie/$(basename "$2").test" -test.timeout 40m -test.run "$only" >"$TMPDIR/$(basename "$2").log" 2>&1 || {
		cat "$TMPDIR/$(basename "$2").log"
		exit 1
	}
	tail -n 1 "$TMPDIR/$(basename "$2").log"
	;;
swift)
	step "the Swift client on Debian 13, with its compiler"
	if [ "$(id -u)" = 0 ]; then
		scripts/swift.sh
	else
		echo "SKIPPED: the Swift client: only root can set up its system"
	fi
	;;
frames-and-clients)
	step "every frame of films cut at random"
	go test ./internal/film/engine -vet=off -count=1 -run TestEveryFrameIsTheRightOne -args -framemap-all
	step "the studio with many clips, and with every request failing"
	CUTROOM_TEST_STUDIO=1 run -count=1 -run 'TestManyClips|TestEveryRequest' -- ./internal/sandbox/player
	step "generated clients"
	if command -v npm >/dev/null; then
		make --no-print-directory clients
	else
		echo "no npm: generated clients are not tested"
	fi
	;;
simulation)
	step "100,000 schedules, and bugs that they must find"
	nice -n 19 go test ./internal/testkit/simulation -vet=off -count=1 -timeout 60m -run 'TestSchedules|TestPlanted' -v -args -schedules=100000 -processes="$(nproc)" -planted
	;;
faults)
	step "every fault of the provider, at every step"
	small -- ./test/matrix
	mixed -- ./test/matrix
	step "broken networks"
	large -parallel 4 -- ./test/network
	;;
crashes)
	for shape in small mixed large; do
		step "separations against random faults and crashes: $shape"
		$shape -- ./test/soak
	done
	step "the standby of the database takes over"
	mixed -run StandbyTakesOver -- ./test/drill
	step "a rolling restart of 8 replicas"
	CUTROOM_TEST_REPLICAS=8 mixed -run RollingRestart -- ./test
	;;
*)
	sed -n '2,7s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
