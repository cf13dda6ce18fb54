import Foundation

#if canImport(FoundationNetworking)
    import FoundationNetworking
#endif

/// Receives how many bytes of a request's body have been sent.
public typealias Sent = @Sendable (Int64) -> Void

/// Sends one request, once. It throws if there is no answer, and when its task is cancelled.
public protocol Transport: Sendable {
    /// `URLRequest.timeoutInterval` is how long nothing may move.
    func data(for request: URLRequest, sent: Sent?) async throws -> (Data, HTTPURLResponse)
    /// Leaves the answer in a file, which the caller moves or removes.
    func download(for request: URLRequest) async throws -> (URL, HTTPURLResponse)
}

/// A `URLSession` without cache and cookies.
public final class URLSessionTransport: Transport {
    private let session: URLSession

    public init() {
        let configuration = URLSessionConfiguration.ephemeral
        // A cache would answer a 304 itself.
        configuration.urlCache = nil
        configuration.requestCachePolicy = .reloadIgnoringLocalCacheData
        configuration.httpCookieStorage = nil
        session = URLSession(configuration: configuration)
    }

    public func data(for request: URLRequest, sent: Sent?) async throws -> (Data, HTTPURLResponse) {
        let watch = Watch(sent)
        guard let body = request.httpBody else {
            let (data, response) = try await session.data(for: request, delegate: watch)
            return (data, try http(response))
        }
        var bare = request
        bare.httpBody = nil
        let (data, response) = try await session.upload(for: bare, from: body, delegate: watch)
        return (data, try http(response))
    }

    public func download(for request: URLRequest) async throws -> (URL, HTTPURLResponse) {
        let (file, response) = try await Download().run(request, session.configuration)
        return (file, try http(response))
    }

    private func http(_ response: URLResponse) throws -> HTTPURLResponse {
        guard let response = response as? HTTPURLResponse else { throw URLError(.badServerResponse) }
        return response
    }
}

/// Tells the progress of one task.
private final class Watch: NSObject, URLSessionTaskDelegate {
    private let sent: Sent?

    init(_ sent: Sent?) { self.sent = sent }

    func urlSession(
        _ session: URLSession, task: URLSessionTask, didSendBodyData bytesSent: Int64, totalBytesSent: Int64,
        totalBytesExpectedToSend: Int64
    ) {
        sent?(totalBytesSent)
    }
}

/// One download. It has a session of its own, because on Linux only the delegate of a session, not that of a task, is
/// asked about redirects. Its methods run one after the other on the session's queue.
private final class Download: NSObject, URLSessionDownloadDelegate, @unchecked Sendable {
    private var file: Result<URL, any Error>?
    private var done: CheckedContinuation<(URL, URLResponse), any Error>?

    func run(_ request: URLRequest, _ configuration: URLSessionConfiguration) async throws -> (URL, URLResponse) {
        let session = URLSession(configuration: configuration, delegate: self, delegateQueue: nil)
        defer { session.finishTasksAndInvalidate() }
        let task = session.downloadTask(with: request)
        return try await withTaskCancellationHandler {
            try await withCheckedThrowingContinuation {
                done = $0
                task.resume()
            }
        } onCancel: {
            task.cancel()
        }
    }

    /// Keeps the access token from the object store, which refuses it.
    func urlSession(
        _ session: URLSession, task: URLSessionTask, willPerformHTTPRedirection response: HTTPURLResponse,
        newRequest request: URLRequest, completionHandler: @escaping @Sendable (URLRequest?) -> Void
    ) {
        var request = request
        request.setValue(nil, forHTTPHeaderField: "Authorization")
        completionHandler(request)
    }

    /// The file is removed as soon as this returns.
    func urlSession(_ session: URLSession, downloadTask: URLSessionDownloadTask, didFinishDownloadingTo location: URL) {
        let kept = FileManager.default.temporaryDirectory.appendingPathComponent("cutroom-" + UUID().uuidString)
        file = Result {
            try FileManager.default.moveItem(at: location, to: kept)
            return kept
        }
    }

    func urlSession(_ session: URLSession, task: URLSessionTask, didCompleteWithError error: (any Error)?) {
        done?.resume(with: Result {
            if let error { throw error }
            guard let file, let response = task.response else { throw URLError(.badServerResponse) }
            return (try file.get(), response)
        })
        done = nil
    }
}
