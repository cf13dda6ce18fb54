package cutroom

import java.io.ByteArrayOutputStream
import java.io.IOException
import java.text.ParseException
import java.text.SimpleDateFormat
import java.util.Locale
import java.util.TimeZone
import java.util.concurrent.locks.ReentrantLock
import kotlin.math.abs
import kotlin.math.min
import kotlin.math.pow
import kotlin.random.Random
import org.json.JSONException
import org.json.JSONObject

/** Why a session ended: the account is gone, or the user has to sign in again. */
enum class Reason { ACCOUNT_DELETED, SIGNED_OUT }

/** The providers of identity tokens. */
enum class Provider { A, B }

/** The store's key of the first user: the one signed in when this version first runs, else the first to sign in. */
internal const val FIRST_USER = "cutroom.firstUser"

/** An answer whose text has arrived whole. */
internal class Answer(val status: Int, val headers: Map<String, String>, private val text: String) {
    val ok get() = status in 200..299
    private val json: JSONObject? by lazy {
        try {
            JSONObject(text)
        } catch (_: JSONException) {
            null
        }
    }
    val code: String? get() = json?.text("error")

    fun error() = CutroomError(status, json ?: JSONObject(), headers["retry-after"]?.toDoubleOrNull(), headers["x-request-id"])

    fun orThrow(): Answer = if (ok) this else throw error()

    /** The value of a successful answer. Another body, such as the sign-in page of a hotel's network, is no answer. */
    fun <T> read(of: (JSONObject) -> T): T = try {
        of(orThrow().json ?: throw JSONException("no JSON"))
    } catch (e: JSONException) {
        throw CutroomError(0, JSONObject(), cause = e)
    }

    /** [read] for answers that may be empty. */
    fun json(): JSONObject = if (ok && text.isEmpty()) JSONObject() else read { it }
}

/**
 * A client of one server, for one user at a time. Its calls block, and may come from several threads. They throw a
 * CutroomError if the server refuses or does not answer, and an InterruptedException if their thread is interrupted
 * while they pause or wait for the server. Two clients in one process must not share a store.
 */
class Cutroom(
    /** The server's address. */
    baseUrl: String,
    val store: Store = MemoryStore(),
    internal val transport: Transport = HttpTransport(),
    /** The device's clock, in milliseconds. */
    private val now: () -> Long = System::currentTimeMillis,
    /** How long an ordinary request may go without moving a byte, in milliseconds. */
    private val timeoutMs: Int = 1000 * Contract.REQUEST_TIMEOUT_SEC,
    /** Whether a misspelt field is an error. */
    private val strict: Boolean = true,
    /** Called when the server ends the session. */
    private val onSignedOut: (Reason) -> Unit = {},
    /** Called with the seconds that the client waits before it repeats a request, and with null once it has an answer. */
    private val onWait: (Double?) -> Unit = {},
) {
    private val base = baseUrl.trimEnd('/') + "/api/v2"
    private val lock = Any()
    private val renewal = ReentrantLock()
    private var loaded = false
    private var current: AuthResponse? = null

    /** When a renewal last failed, by the device's clock. Otherwise every request would try again, and the server limits renewals. */
    private var failedAt: Long? = null

    /** The server's clock minus this device's, in milliseconds. */
    @Volatile private var skewMs = 0L

    val assets = Assets(this)
    val jobs = Jobs(this)
    val purchases = Purchases(this)

    /** The current session, null if nobody is signed in. */
    fun session(): AuthResponse? = synchronized(lock) {
        if (!loaded) current = store.get(SESSION)?.let { AuthResponse.of(JSONObject(it)) }
        loaded = true
        current
    }

    /** Signs in with the identity token of a provider. Provider B tells the name only at the first sign-in. */
    fun signIn(provider: Provider, idToken: String, fullName: String = ""): AuthResponse {
        keep(null)
        val body = JSONObject().put("idToken", idToken)
        if (provider == Provider.B) body.put("fullName", fullName)
        val path = if (provider == Provider.A) "/auth/provider_a" else "/auth/provider_b"
        return send("POST", path, body.toString()).read(AuthResponse::of).also(::keep)
    }

    /** Forgets the session on this device. */
    fun signOut() = keep(null)

    /** The user, the credits and the limits. */
    fun account(): Account = send("GET", "/auth/account").read(Account::of)

    /** Deletes the account with its credits, jobs and files, which cannot be undone, and forgets the session. */
    fun deleteAccount() {
        send("DELETE", "/auth/account").orThrow()
        keep(null)
    }

    /** Registers this phone for push messages when a job ends: at each start of the app, and for each new token. */
    fun register(device: Device) {
        call("PUT", "/devices", device.json())
    }

    /** Removes this phone from push messages, before a sign-out. */
    fun unregister(device: Device) {
        call("DELETE", "/devices", device.json())
    }

    /**
     * Everything else: a path below `/api/v2`, signed, and repeated by the rules of docs/app/errors.md. An answer without
     * a body is an empty object.
     */
    fun call(method: String, path: String, body: JSONObject? = null, headers: Map<String, String> = emptyMap()): JSONObject =
        send(method, path, body?.toString(), headers).json()

    /**
     * Sends a request, signed, and repeats it. If a [user] is named, it is sent as theirs or not at all. [receive]
     * consumes a successful answer in place of its text.
     */
    internal fun send(
        method: String,
        path: String,
        text: String? = null,
        headers: Map<String, String> = emptyMap(),
        user: String? = null,
        receive: ((Response) -> Unit)? = null,
    ): Answer {
        val token = if (path.startsWith("/auth/provider_")) null else token(user)
        val safe = method != "POST" || "Idempotency-Key" in headers || path.substringBefore('?') in Contract.repeatable
        val request = request(method, path, text, headers, token, safe)
        var attempt = 1
        while (true) {
            val answer = try {
                once(request, receive)
            } catch (e: IOException) {
                if (Thread.interrupted()) throw InterruptedException()
                if (!safe || attempt == Contract.TRIES) throw CutroomError(0, JSONObject(), cause = e)
                null
            }
            val wait = if (answer == null) backoff(attempt) else waitBefore(answer, safe, attempt)
            onWait(wait)
            if (answer != null && wait == null) {
                if (answer.status == 401 && token != null) ended(token, answer)
                return answer
            }
            Thread.sleep((1000 * (wait ?: 0.0)).toLong())
            attempt++
        }
    }

    private fun token(user: String?): String? {
        if (session()?.let(::isFresh) == false) {
            renewal.lockInterruptibly()
            try {
                // Another thread may have renewed it in the meantime.
                session()?.let { if (!isFresh(it)) renew(it) }
            } finally {
                renewal.unlock()
            }
        }
        val session = session()
        if (user != null && session?.user?.sub != user) throw signedOut()
        return session?.accessToken
    }

    private fun isFresh(session: AuthResponse) = session.expiresAt - (now() + skewMs) >= 1000L * Contract.RENEW_BEFORE_SEC

    /** Renews a session. If that fails, the old token may still be valid; if it is not, the next answer says so. */
    private fun renew(session: AuthResponse) {
        failedAt?.let { if (abs(now() - it) < RENEWAL_PAUSE_MS) return }
        val fresh = try {
            once(request("POST", "/auth/refresh", null, emptyMap(), session.accessToken, true)).read(AuthResponse::of)
        } catch (_: IOException) {
            null
        } catch (_: CutroomError) {
            null
        }
        failedAt = if (fresh == null) now() else null
        // A sign-out or another sign-in in the meantime wins.
        if (fresh != null) synchronized(lock) { if (current === session) keep(fresh) }
    }

    private fun keep(session: AuthResponse?): Unit = synchronized(lock) {
        val user = (session() ?: session)?.user?.sub
        if (user != null && store.get(FIRST_USER) == null) store.put(FIRST_USER, user)
        current = session
        store.put(SESSION, session?.json()?.toString())
    }

    private fun ended(token: String, answer: Answer) {
        synchronized(lock) {
            // A renewal or another sign-in may have replaced the token while the request was under way.
            if (session()?.accessToken != token) return
            keep(null)
        }
        onSignedOut(if (answer.code == "account_deleted") Reason.ACCOUNT_DELETED else Reason.SIGNED_OUT)
    }

    private fun request(method: String, path: String, text: String?, headers: Map<String, String>, token: String?, safe: Boolean): Request {
        val all = LinkedHashMap(headers)
        if (token != null) all["Authorization"] = "Bearer $token"
        if (method == "POST" && strict) all["Prefer"] = "handling=strict"
        val bytes = if (method == "POST" && text == null) ByteArray(0) else text?.toByteArray()
        if (text != null) all["Content-Type"] = "application/json"
        val waits = headers["Prefer"]?.let { Regex("\\bwait=(\\d+)").find(it) }?.groupValues?.get(1)?.toInt()
        val limit = if (waits == null) timeoutMs else 1000 * waits + WAITED_LONGER_MS
        return Request(method, base + path, all, bytes?.let { b -> Body(b.size.toLong()) { it.write(b) } }, limit, safe)
    }

    private fun once(request: Request, receive: ((Response) -> Unit)? = null): Answer = transport.send(request).use { response ->
        response.headers["date"]?.let(::heard)
        if (receive != null && response.status < 400) {
            receive(response)
            return Answer(200, response.headers, "")
        }
        val text = ByteArrayOutputStream().also { response.copyTo(it) }
        Answer(response.status, response.headers, text.toString("UTF-8"))
    }

    private fun heard(date: String) {
        val format = SimpleDateFormat("EEE, dd MMM yyyy HH:mm:ss zzz", Locale.US)
        format.timeZone = TimeZone.getTimeZone("GMT")
        try {
            format.parse(date)?.let { skewMs = it.time - now() }
        } catch (_: ParseException) {
            // the last one still holds
        }
    }

    /** The seconds to wait before the request is repeated, null if its answer is final. */
    private fun waitBefore(answer: Answer, safe: Boolean, attempt: Int): Double? {
        if (attempt == Contract.TRIES) return null
        return when (answer.status) {
            429, 503 -> {
                val after = answer.headers["retry-after"]?.toDoubleOrNull() ?: Contract.MISSING_RETRY_AFTER_SEC.toDouble()
                // Refused before anything was done, so a POST may be repeated as well.
                after.takeIf { answer.code !in Contract.lasting && it in 0.0..Contract.LONGEST_WAIT_SEC.toDouble() }
            }
            500, 502, 504 -> if (safe) backoff(attempt) else null
            else -> null
        }
    }

    private companion object {
        const val SESSION = "cutroom.session"

        /** How long a failed renewal is not repeated, in milliseconds. */
        const val RENEWAL_PAUSE_MS = 60_000

        /** How much longer an answer may take than the server promises to wait. */
        const val WAITED_LONGER_MS = 15_000

        /** 1, 2, 4, ... seconds and a random part, so that many clients do not come back at the same moment. */
        fun backoff(attempt: Int) = min(Contract.LONGEST_WAIT_SEC.toDouble(), 2.0.pow(attempt - 1)) * Random.nextDouble(0.75, 1.25)
    }
}
