#!/usr/bin/env bash
# Compiles clients/kotlin with its scenarios, and prints the program that runs them. Needs Node; installs a Java run
# time, OkHttp, and org.json, which Android has, from Debian's packages.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/setup.sh kotlin >&2
npm ci --prefix clients/kotlin --no-audit --no-fund >&2
libraries=$PWD/clients/kotlin/node_modules/kotlin-compiler/lib
jars=/usr/share/java
packages=$jars/com.android.json.jar:$jars/okhttp.jar:$jars/okio.jar
out=$PWD/.tools/kotlin
rm -rf "$out"
mkdir -p "$out"
# Android's tools translate Java 8 for API 24.
java -Xmx1g -XX:TieredStopAtLevel=1 -cp "$libraries/kotlin-preloader.jar" org.jetbrains.kotlin.preloading.Preloader \
	-cp "$libraries/kotlin-compiler.jar" org.jetbrains.kotlin.cli.jvm.K2JVMCompiler \
	-no-reflect -jvm-target 1.8 -Werror -classpath "$packages" -d "$out/classes" clients/kotlin/src clients/kotlin/test >&2
cat >"$out/scenarios" <<END
#!/bin/sh
exec java -Xmx256m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -cp "$out/classes:$libraries/kotlin-stdlib.jar:$packages" ScenariosKt "\$@"
END
chmod +x "$out/scenarios"
echo "$out/scenarios"
