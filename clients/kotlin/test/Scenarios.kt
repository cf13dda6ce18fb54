// Runs one scenario of the table in test/clients/phones_test.go against a server. BASE and ID_TOKEN say where and who,
// STORE is a folder that outlives the process, CLIP is a video of two seconds, and PACKAGE names the transport.

import cutroom.*
import java.io.ByteArrayInputStream
import java.io.File
import java.io.IOException
import java.util.concurrent.Callable
import java.util.concurrent.CopyOnWriteArrayList
import java.util.concurrent.CountDownLatch
import java.util.concurrent.Executors
import java.util.concurrent.FutureTask
import java.util.concurrent.Semaphore
import java.util.concurrent.TimeUnit
import kotlin.system.exitProcess
import okhttp3.OkHttpClient
import org.json.JSONObject

private fun env(name: String) = System.getenv(name) ?: error("$name is not set")

private fun same(got: Any?, want: Any?) = check(got == want) { "got $got, want $want" }

/** The error of a call that must fail. */
private inline fun <reified E : Exception> thrown(act: () -> Any?): E {
    val value = try {
        act()
    } catch (e: Exception) {
        return e as? E ?: throw e
    }
    error("succeeded: $value")
}

/** A network that first fails in a way that the scenario chooses, then works. */
private class Net : Transport {
    class Sent(val method: String, val path: String, val key: String?, val replayed: Boolean)

    private class Fault(val path: String, val act: (Request) -> Response)

    private val real = if (env("PACKAGE") == "Kotlin with OkHttp") OkTransport(OkHttpClient()) else HttpTransport()
    private val faults = ArrayList<Fault>()
    private val log = CopyOnWriteArrayList<Sent>()
    val acted = Semaphore(0)

    /** This answer instead of the server's. */
    fun answer(path: String, status: Int, body: String, vararg headers: Pair<String, String>) = fail(path) { request ->
        note(request, false)
        Response(status, mapOf(*headers), ByteArrayInputStream(body.toByteArray()))
    }

    /** The server acts, and its answer is lost. */
    fun lose(path: String) = fail(path) { request ->
        pass(request).close()
        throw IOException("the connection broke")
    }

    /** The server acts, and the app is killed before it has the answer. */
    fun die(path: String) = fail(path) { request ->
        pass(request).close()
        File(store, "key").writeText(request.headers["Idempotency-Key"] ?: "")
        ProcessBuilder("sh", "-c", "kill -9 ${ProcessHandle.current().pid()}").start().waitFor()
        error("it lives")
    }

    /** The server acts, and its answer does not come. */
    fun hold(path: String) = fail(path) { request ->
        pass(request).close()
        acted.release()
        CountDownLatch(1).await()
        error("it was answered")
    }

    fun sent(path: String) = log.filter { it.path.endsWith(path) }

    fun puts() = log.count { it.method == "PUT" }

    override fun send(request: Request): Response {
        val fault = synchronized(faults) { faults.firstOrNull { path(request).endsWith(it.path) }?.also(faults::remove) }
        return fault?.act?.invoke(request) ?: pass(request)
    }

    private fun fail(path: String, act: (Request) -> Response) = synchronized(faults) { faults.add(Fault(path, act)) }

    private fun pass(request: Request) = real.send(request).also { note(request, "idempotent-replayed" in it.headers) }

    private fun note(request: Request, replayed: Boolean) =
        log.add(Sent(request.method, path(request), request.headers["Idempotency-Key"], replayed))

    private fun path(request: Request) = request.url.substringBefore('?')
}

private const val DAY = 86_400_000L
private val base = env("BASE")
private val store = File(env("STORE"))
private val clip = File(env("CLIP"))
private val large = File(env("LARGE"))
private val net = Net()
private val waits = CopyOnWriteArrayList<Double>()
private val ended = CopyOnWriteArrayList<Reason>()
private val files = FileStore(File(store, "store"))
private val cutroom = client(files)

private fun client(store: Store, transport: Transport = net, ahead: Long = 0) = Cutroom(
    base, store, transport, now = { System.currentTimeMillis() + ahead }, onSignedOut = { ended.add(it) }, onWait = { s -> s?.let(waits::add) },
)

/** Signs in, unless an earlier process of this device has: the service limits sign-ins. */
private fun signIn() {
    if (cutroom.session() == null) cutroom.signIn(Provider.A, env("ID_TOKEN"))
}

private fun balance() = cutroom.account().balance

private fun film(key: String) =
    RenderConfigV3(listOf(SegmentV3(order = 0, durationMs = 2000, trimEndMs = 1000, sourceAssetKey = key)), quality = "low")

/** Runs a call on a thread that is interrupted when [at] returns. That must end the call. */
private fun interrupted(at: () -> Unit, call: () -> Any?) {
    val result = FutureTask { thrown<InterruptedException>(call) }
    val thread = Thread(result)
    thread.start()
    at()
    thread.interrupt()
    result.get(45, TimeUnit.SECONDS)
}

/** A device with this session and nothing else. */
private fun holding(session: AuthResponse) = MemoryStore().apply { put("cutroom.session", session.json().toString()) }

private val scenarios: Map<String, () -> Unit> = mapOf(
    "a film although the answer of its submit is lost" to {
        signIn()
        val shares = CopyOnWriteArrayList<Double>()
        val key = cutroom.assets.upload(clip) { shares.add(it) }
        same(shares.last(), 1.0)
        same(cutroom.assets.upload(clip), key)
        same(net.puts(), 1)
        net.lose("/render/v3")
        val job = cutroom.jobs.render(film(key), "draft")
        val sent = net.sent("/render/v3")
        same(sent.size, 2)
        same(sent[0].key, sent[1].key)
        check(sent[1].replayed) { "the second answer is not that of the first submit" }
        val states = ArrayList<String>()
        val done = cutroom.jobs.film(job.jobId) { states.add(it.status) }
        same(states.last(), "COMPLETED")
        same(cutroom.jobs.films().jobs.map { it.jobId }, listOf(job.jobId))
        val file = File(store, "film.mp4")
        repeat(2) { cutroom.jobs.download(job.jobId, file) }
        same(file.length(), done.sizeBytes)
        val poster = File(store, "poster.jpg")
        cutroom.jobs.poster(job.jobId, poster)
        same(poster.readBytes().take(2), listOf(0xff.toByte(), 0xd8.toByte()))
        same(cutroom.jobs.unanswered("draft"), null)
        cutroom.jobs.delete(job.jobId)
        same(cutroom.jobs.films().jobs.size, 0)
        cutroom.deleteAccount()
        same(cutroom.session(), null)
    },
    "the first film of the README" to {
        val file = File(store, "first.mp4")
        firstFilm(base, env("ID_TOKEN"), File(store, "store"), clip, file)
        check(file.length() > 1000) { "no film" }
    },
    "a busy server is asked again when it says" to {
        signIn()
        net.answer("/assets/upload-url", 503, """{"error":"unavailable"}""", "retry-after" to "1")
        val key = cutroom.assets.upload(clip)
        same(waits.toList(), listOf(1.0))
        net.answer("/render/v3", 429, """{"error":"rate_limited"}""", "retry-after" to "2")
        cutroom.jobs.render(film(key))
        same(waits.toList(), listOf(1.0, 2.0))
        // A submit that may have been accepted keeps its key: neither a 429 nor a page from a proxy is its answer.
        for ((status, body) in listOf(429 to """{"error":"too_many_jobs"}""", 200 to "<html>", 403 to "<html>")) {
            net.answer("/render/v3", status, body)
            thrown<CutroomError> { cutroom.jobs.render(film(key), "kept") }
        }
        cutroom.jobs.render(film(key), "kept")
        same(net.sent("/render/v3").takeLast(4).map { it.key }.toSet().size, 1)
        net.answer("/render/v3", 503, """{"error":"paused"}""", "retry-after" to "1")
        val paused = thrown<CutroomError> { cutroom.jobs.render(film(key), "other") }
        same(paused.next, Next.AGAIN)
        same(paused.retryAfterSec, 1.0)
        // Without a key a POST may have taken effect.
        net.answer("/credits/admin-grant", 502, "")
        same(thrown<CutroomError> { cutroom.call("POST", "/credits/admin-grant", JSONObject()) }.status, 502)
        same(net.sent("/credits/admin-grant").size, 1)
        same(waits.toList(), listOf(1.0, 2.0))
    },
    "a session that the server ends" to {
        signIn()
        val session = cutroom.session()!!
        for ((code, reason) in listOf("unauthorized" to Reason.SIGNED_OUT, "account_deleted" to Reason.ACCOUNT_DELETED)) {
            val kept = holding(session)
            val device = client(kept)
            device.account()
            net.answer("/assets/upload-url", 401, """{"error":"$code"}""")
            val refused = thrown<CutroomError> { device.assets.upload(clip) }
            same(refused.status, 401)
            same(refused.next, Next.SIGN_IN)
            same(ended.last(), reason)
            same(device.session(), null)
            same(kept.get("cutroom.session"), null)
        }
        same(ended.size, 2)
        // The service itself refuses, on a POST that is repeated and on one that is not.
        for (path in listOf("/assets/upload-url", "/credits/admin-grant")) {
            val tampered = client(holding(session.copy(accessToken = "x.y.z")))
            same(thrown<CutroomError> { tampered.call("POST", path, JSONObject()) }.status, 401)
            same(tampered.session(), null)
        }
        // A submit that was refused because there was no session is sent again under its key.
        val key = cutroom.assets.upload(clip)
        net.answer("/render/v3", 401, """{"error":"unauthorized"}""")
        same(thrown<CutroomError> { cutroom.jobs.render(film(key), "draft") }.next, Next.SIGN_IN)
        signIn()
        check(cutroom.jobs.unanswered("draft") != null) { "the submit is lost" }
        val sent = net.sent("/render/v3")
        same(sent.size, 2)
        same(sent[0].key, sent[1].key)
    },
    "a wrong clock" to {
        signIn()
        val session = cutroom.session()!!
        // Six days ahead, the token seems nearly over until the server's clock is known.
        val fastNet = Net()
        val fast = client(holding(session), fastNet, 6 * DAY)
        repeat(3) { fast.account() }
        check(fastNet.sent("/auth/refresh").size <= 1) { "renewed again and again" }
        // A token with a day left is renewed, once for three threads.
        val lateNet = Net()
        val dayLeft = session.copy(expiresAt = System.currentTimeMillis() + DAY)
        val late = client(holding(dayLeft), lateNet)
        val threads = Executors.newFixedThreadPool(3)
        threads.invokeAll(List(3) { Callable { late.account() } }).forEach { it.get() }
        threads.shutdown()
        same(lateNet.sent("/auth/refresh").size, 1)
        check(late.session()!!.expiresAt > System.currentTimeMillis() + 5 * DAY) { "not renewed" }
        // Six days behind, it seems fresh until the server's clock is known.
        val slowNet = Net()
        val slow = client(holding(dayLeft), slowNet, -6 * DAY)
        slow.account()
        same(slowNet.sent("/auth/refresh").size, 0)
        slow.account()
        same(slowNet.sent("/auth/refresh").size, 1)
        // After a renewal has failed, not every request tries it again.
        val deafNet = Net()
        val deaf = client(holding(dayLeft), deafNet)
        repeat(2) { deafNet.answer("/auth/refresh", 503, "") }
        repeat(3) { deaf.account() }
        same(deafNet.sent("/auth/refresh").size, 1)
    },
    "killed between submit and answer" to {
        signIn()
        val key = cutroom.assets.upload(clip)
        File(store, "balance").writeText(balance().toString())
        net.die("/separate/v3")
        cutroom.jobs.separate(SeparationByReference(sourceAssetKey = key), "voice")
        error("it lives")
    },
    "started again after that" to {
        val job = cutroom.jobs.unanswered("voice")!!
        val sent = net.sent("/separate/v3")
        same(sent.map { it.key }, listOf(File(store, "key").readText()))
        check(sent[0].replayed) { "it is another submit" }
        same(cutroom.jobs.unanswered("voice"), null)
        val stems = cutroom.jobs.stems(job.jobId)
        check(stems.stems.isNotEmpty()) { "no stems" }
        same(cutroom.jobs.separations().jobs.size, 1)
        same(balance(), File(store, "balance").readText().toLong() - stems.credits)
    },
    "a dropped connection in one part of an upload" to {
        signIn()
        val shares = CopyOnWriteArrayList<Double>()
        same(cutroom.assets.upload(large) { shares.add(it) }, "assets/" + large.name)
        same(shares.last(), 1.0)
        check(shares.all { it in 0.0..1.0 }) { "$shares" }
        check(net.sent("/assets/upload-url").size > 1) { "nothing failed" }
        same(net.sent("/assets/complete").size, 1)
    },
    "killed in an upload" to {
        signIn()
        // The first part that arrives ends the process.
        net.die(".wav")
        cutroom.assets.upload(large)
        error("it lives")
    },
    "continued after that" to {
        val body = AssetUploadUrlRequest(large.nameWithoutExtension, large.length(), "wav", "audio/wav", multipart = true)
        val parts = AssetUploadUrlResponse.of(cutroom.call("POST", "/assets/upload-url", body.json())).parts!!
        val waiting = parts.count { !it.done }
        check(waiting < parts.size) { "no part has arrived" }
        val shares = CopyOnWriteArrayList<Double>()
        same(cutroom.assets.upload(large) { shares.add(it) }, "assets/" + large.name)
        // Parts that were under way when the process died may have arrived since.
        check(net.puts() <= waiting) { "parts were sent again" }
        check(shares[0] > 0.1) { "the progress begins at ${shares[0]}" }
    },
    "hashes of files of any length" to {
        signIn()
        val files = File(env("FILES")).listFiles()!!
        check(files.size > 5) { "${files.size} files" }
        for (file in files) same(cutroom.assets.upload(file), "assets/" + file.name)
        same(cutroom.assets.list().assets.size, files.size + 1)
    },
    "a purchase is credited once" to {
        signIn()
        val before = balance()
        val purchase = CreditPurchaseRequest("platform_a", env("ORDER"), env("RECEIPT"), "credits.10")
        net.answer("/credits/purchase", 502, """{"error":"receipt_verify_unavailable"}""")
        net.lose("/credits/purchase")
        val settled = cutroom.purchases.add(purchase).single() as Settled.Credited
        same(settled.purchase, purchase)
        same(settled.balance, before + 10)
        same(cutroom.purchases.waiting().size, 0)
        cutroom.purchases.add(purchase)
        same(balance(), before + 10)
        net.answer("/credits/purchase", 402, """{"error":"receipt_invalid","detail":"cancelled"}""")
        same((cutroom.purchases.add(purchase).single() as Settled.Dropped).detail, "cancelled")
        // A page that does not come from the service credits nothing and drops nothing.
        net.answer("/credits/purchase", 200, "<html>")
        check(cutroom.purchases.add(purchase).single() is Settled.Kept)
        same(cutroom.purchases.present().single().isFinal, true)
        val never = purchase.copy(transactionId = "GPA.0000-0000-0000-00000", receipt = "nonsense")
        check(cutroom.purchases.add(never).single() is Settled.Kept)
        same(cutroom.purchases.waiting(), listOf(never))
    },
    "a submit and a purchase that the app cancels" to {
        signIn()
        val recording = SeparationByReference(sourceAssetKey = cutroom.assets.upload(clip))
        val before = balance()
        net.hold("/separate/v3")
        interrupted(net.acted::acquire) { cutroom.jobs.separate(recording, "voice") }
        val job = cutroom.jobs.separate(recording, "voice")
        val sent = net.sent("/separate/v3")
        same(sent.map { it.replayed }, listOf(false, true))
        same(sent[0].key, sent[1].key)
        same(cutroom.jobs.unanswered("voice"), null)
        val paid = balance()
        same(paid, before - cutroom.jobs.stems(job.jobId).credits)
        same(cutroom.jobs.separations().jobs.size, 1)
        val purchase = CreditPurchaseRequest("platform_a", env("ORDER"), env("RECEIPT"), "credits.10")
        net.hold("/credits/purchase")
        interrupted(net.acted::acquire) { cutroom.purchases.add(purchase) }
        same(cutroom.purchases.waiting(), listOf(purchase))
        check(cutroom.purchases.present().single() is Settled.Credited)
        same(cutroom.purchases.waiting().size, 0)
        same(balance(), paid + 10)
    },
    "another user signs in while a submit is open" to {
        signIn()
        val recording = SeparationByReference(sourceAssetKey = cutroom.assets.upload(clip))
        val before = balance()
        net.hold("/separate/v3")
        interrupted(net.acted::acquire) { cutroom.jobs.separate(recording, "voice") }
        files.put("cutroom.firstUser", null) // as earlier versions left the store
        cutroom.signOut()
        same(cutroom.jobs.unanswered("voice"), null)
        same(thrown<CutroomError> { cutroom.jobs.separate(recording, "voice") }.next, Next.SIGN_IN)
        cutroom.signIn(Provider.A, env("OTHER_ID_TOKEN"))
        same(cutroom.jobs.unanswered("voice"), null)
        same(cutroom.assets.upload(clip), recording.sourceAssetKey)
        cutroom.jobs.separate(recording, "voice")
        cutroom.signOut()
        signIn()
        val job = cutroom.jobs.unanswered("voice")!!
        val sent = net.sent("/separate/v3")
        same(sent.map { it.replayed }, listOf(false, false, true))
        same(sent[2].key, sent[0].key)
        check(sent[1].key != sent[0].key) { "it is the other user's key" }
        same(cutroom.jobs.unanswered("voice"), null)
        same(balance(), before - cutroom.jobs.stems(job.jobId).credits)
        same(cutroom.jobs.separations().jobs.size, 1)
    },
    "errors have a next step" to {
        signIn()
        val missing = thrown<CutroomError> { cutroom.jobs.render(film("assets/" + "0".repeat(64) + ".mp4")) }
        same(missing.status, 404)
        same(missing.field, "segments[0].sourceAssetKey")
        same(missing.next, Next.UPLOAD_AGAIN)
        check(missing.requestId != null) { "no request id" }
        same(cutroom.jobs.unanswered("render"), null)
        val misspelt = JSONObject().put("assetKey", "x").put("pionts", "100")
        same(thrown<CutroomError> { cutroom.call("POST", "/assets/analysis", misspelt) }.next, Next.FIX)
        same(thrown<CutroomError> { cutroom.assets.upload(File("/a/clip.exe")) }.field, "ext")
        same(thrown<CutroomError> { cutroom.jobs.film("../auth/account?x=") }.status, 404)
        net.answer("/status", 200, "<html>")
        net.answer(
            "/status", 200,
            """{"jobId":"rnd-1","status":"FAILED","outputKind":"video","quality":"low","createdAt":1,"progress":0,
            "error":"the clip is damaged","errorCode":"source_unreadable","field":"segments[0].sourceAssetKey"}""",
        )
        val failed = thrown<JobFailed> { cutroom.jobs.film("rnd-1") }
        same(failed.code, "source_unreadable")
        same(failed.field, "segments[0].sourceAssetKey")
    },
    "the samples of docs/app" to {
        val device = start(base, File(store, "store"), { env("ID_TOKEN") }) { ended.add(it) }
        val before = device.account().balance
        val shares = CopyOnWriteArrayList<Double>()
        val key = upload(device, clip) { shares.add(it) }!!
        same(shares.last(), 1.0)
        val separation = stems(device, key, "draft")
        same(stems(device, key, "draft").stems.map { it.stemId }, separation.stems.map { it.stemId })
        val job = device.jobs.render(film(key), "draft")
        val file = File(store, "sample.mp4")
        film(device, job.jobId, file) {}
        check(file.length() > 1000) { "no film" }
        register(device, "c0ffee00c0ffee00")
        val paid = device.account().balance
        same(paid, before - separation.credits)
        val consumed = ArrayList<String>()
        // The second purchase is not paid yet, and the third has a receipt that no store knows.
        val bought = listOf(
            Purchase(Purchase.PurchaseState.PURCHASED, env("ORDER"), env("RECEIPT"), listOf("credits.10")),
            Purchase(Purchase.PurchaseState.PENDING, null, "pending", listOf("credits.10")),
            Purchase(Purchase.PurchaseState.PURCHASED, "GPA.0000-0000-0000-00000", "nonsense", listOf("credits.10")),
        )
        for (purchase in bought) settle(device, purchase) { consumed.add(it) }
        same(consumed, listOf(env("RECEIPT")))
        same(device.purchases.waiting().size, 1)
        same(device.account().balance, paid + 10)
    },
    "a server that does not answer" to {
        val brief = Cutroom(env("SILENT"), timeoutMs = 1000)
        val unsafe = thrown<CutroomError> { brief.call("POST", "/credits/admin-grant", JSONObject()) }
        same(unsafe.status, 0)
        same(unsafe.next, Next.AGAIN)
        // An interrupt ends a call long before its time-out, which is a minute here.
        val silent = Cutroom(env("SILENT"))
        signIn()
        val ending = cutroom.session()!!.copy(expiresAt = System.currentTimeMillis() + DAY)
        val renewing = Cutroom(env("SILENT"), holding(ending))
        for (call in listOf({ silent.jobs.film("rnd-1") }, { silent.assets.upload(clip) }, { renewing.account() })) {
            interrupted({ Thread.sleep(300) }, call)
        }
    },
)

fun main(args: Array<String>) {
    val scenario = scenarios[args.singleOrNull()] ?: run {
        println(scenarios.keys.joinToString("\n"))
        exitProcess(2)
    }
    scenario()
}
