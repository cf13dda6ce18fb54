import cutroom.Request
import cutroom.Response
import cutroom.Transport
import cutroom.endedByInterrupt
import java.util.concurrent.TimeUnit.MILLISECONDS
import okhttp3.OkHttpClient
import okhttp3.RequestBody
import okio.BufferedSink

class OkTransport(client: OkHttpClient) : Transport {
    private val plain = client.newBuilder().cache(null).followRedirects(false).followSslRedirects(false).build()

    override fun send(request: Request): Response {
        val limit = request.timeoutMs.toLong()
        val http = plain.newBuilder().readTimeout(limit, MILLISECONDS).writeTimeout(limit, MILLISECONDS)
            .retryOnConnectionFailure(request.repeatable || request.method == "GET").build()
        val body = request.body?.let { b ->
            object : RequestBody() {
                override fun contentType() = null // it is one of the headers
                override fun contentLength() = b.size
                override fun writeTo(sink: BufferedSink) = b.writeTo(sink.outputStream())
            }
        }
        val ok = okhttp3.Request.Builder().url(request.url).method(request.method, body)
        request.headers.forEach { (name, value) -> ok.header(name, value) }
        val call = http.newCall(ok.build())
        val answer = endedByInterrupt(call::cancel) { call.execute() }
        val headers = answer.headers.names().associate { it.lowercase() to answer.header(it).orEmpty() }
        return Response(answer.code, headers, checkNotNull(answer.body).byteStream())
    }
}
