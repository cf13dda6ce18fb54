package cutroom

import java.io.Closeable
import java.io.IOException
import java.io.InputStream
import java.io.InterruptedIOException
import java.io.OutputStream
import java.net.HttpRetryException
import java.net.HttpURLConnection
import java.net.URL
import java.util.Locale
import java.util.concurrent.Executors
import java.util.concurrent.ScheduledExecutorService
import java.util.concurrent.TimeUnit
import java.util.concurrent.atomic.AtomicBoolean
import java.util.concurrent.atomic.AtomicLong

/** The body of a request: exactly [size] bytes. */
class Body(val size: Long, val writeTo: (OutputStream) -> Unit)

class Request(
    val method: String,
    val url: String,
    val headers: Map<String, String> = emptyMap(),
    val body: Body? = null,
    /** How long a connection may go without moving a byte, in milliseconds. */
    val timeoutMs: Int = 1000 * Contract.REQUEST_TIMEOUT_SEC,
    /** Whether the server acts only once if the request arrives twice. */
    val repeatable: Boolean = false,
)

/** An answer. The names of [headers] are in lower case. */
class Response(val status: Int, val headers: Map<String, String>, val body: InputStream) : Closeable {
    override fun close() = body.close()

    /** Copies the body. Throws an InterruptedException between two reads if its thread is interrupted. */
    internal fun copyTo(out: OutputStream) {
        val piece = ByteArray(1 shl 16)
        while (true) {
            val n = body.read(piece)
            if (n < 0) return
            out.write(piece, 0, n)
            if (Thread.interrupted()) throw InterruptedException()
        }
    }
}

/**
 * Sends one request once, without following redirects. Throws an IOException if there is no answer, and soon after its
 * thread is interrupted.
 */
fun interface Transport {
    fun send(request: Request): Response
}

/** The transport that Android and the JVM have. */
class HttpTransport : Transport {
    override fun send(request: Request): Response {
        val connection = URL(request.url).openConnection() as HttpURLConnection
        connection.instanceFollowRedirects = false // they would get the token
        connection.requestMethod = request.method
        connection.connectTimeout = minOf(request.timeoutMs, CONNECT_MS)
        connection.readTimeout = request.timeoutMs
        request.headers.forEach { (name, value) -> connection.setRequestProperty(name, value) }
        // Writes have no time-out, and neither they nor a wait for the answer end when their thread is interrupted.
        val moved = AtomicLong(System.nanoTime())
        return endedByInterrupt(connection::disconnect, { System.nanoTime() - moved.get() > request.timeoutMs * 1_000_000L }) {
            exchange(connection, request, moved)
        }
    }

    private fun exchange(connection: HttpURLConnection, request: Request, moved: AtomicLong): Response {
        try {
            request.body?.let { write(connection, it, request.repeatable, moved) }
            val status = connection.responseCode
            if (status < 0) throw IOException("no HTTP answer")
            val body = (if (status >= 400) connection.errorStream else connection.inputStream) ?: ByteArray(0).inputStream()
            val headers = connection.headerFields.entries.mapNotNull { (name: String?, values) -> name?.let { it.lowercase(Locale.ROOT) to values.last() } }
            return Response(status, headers.toMap(), body)
        } catch (e: HttpRetryException) {
            // The JVM, unlike Android, hides the text of a 401 if the request was streamed.
            return Response(e.responseCode(), emptyMap(), ByteArray(0).inputStream())
        } catch (e: IOException) {
            connection.disconnect()
            throw e
        }
    }

    private fun write(connection: HttpURLConnection, body: Body, repeatable: Boolean, moved: AtomicLong) {
        connection.doOutput = true
        // Otherwise the class holds the body in memory, and sends a POST twice of its own accord.
        if (!repeatable) connection.setFixedLengthStreamingMode(body.size)
        connection.outputStream.use { out ->
            body.writeTo(object : OutputStream() {
                override fun write(b: Int) = write(byteArrayOf(b.toByte()), 0, 1)

                override fun write(b: ByteArray, off: Int, len: Int) {
                    out.write(b, off, len)
                    moved.set(System.nanoTime())
                }
            })
        }
    }

    private companion object {
        /** How long connecting may take, in milliseconds: nothing can end it earlier. */
        const val CONNECT_MS = 15_000
    }
}

/**
 * Runs a request that does not notice by itself that its thread is interrupted or that it is [late]. In both cases [close]
 * runs once, on another thread, and must end the request.
 */
fun <T> endedByInterrupt(close: () -> Unit, late: () -> Boolean = { false }, send: () -> T): T {
    val caller = Thread.currentThread()
    if (caller.isInterrupted) throw InterruptedIOException()
    val closed = AtomicBoolean()
    val watch = watchers.scheduleWithFixedDelay({
        if ((late() || caller.isInterrupted) && closed.compareAndSet(false, true)) thread("cutroom-close", close).start()
    }, WATCH_MS, WATCH_MS, TimeUnit.MILLISECONDS)
    try {
        return send()
    } finally {
        watch.cancel(false)
    }
}

private const val WATCH_MS = 200L

private val watchers: ScheduledExecutorService = Executors.newSingleThreadScheduledExecutor { thread("cutroom-watch", it) }

private fun thread(name: String, run: Runnable) = Thread(run, name).apply { isDaemon = true }
