import Foundation

#if canImport(FoundationNetworking)
    import FoundationNetworking
#endif

/// Why a session ended: the account is gone, or the user has to sign in again.
public enum SignedOut: Sendable {
    case accountDeleted, signedOut
}

public enum Provider: String, Sendable {
    case a = "provider_a"
    case b = "provider_b"
}

public struct Options: Sendable {
    /// The device's clock.
    public var now: @Sendable () -> Date = { Date() }
    /// How long an ordinary request may go without a byte.
    public var timeoutSec = Double(Contract.requestTimeoutSec)
    /// Whether a misspelt field is an error.
    public var strict = true
    /// Called when the server ends the session.
    public var onSignedOut: @Sendable (SignedOut) -> Void = { _ in }
    /// Called with the seconds that the client waits before it repeats a request, and with nil once it has an answer.
    public var onWait: @Sendable (Double?) -> Void = { _ in }

    public init() {}
}

/// A client of one server, for one user at a time. Cancelling the task of a call ends the call.
public final class Cutroom: Sendable {
    public let assets: Assets
    public let jobs: Jobs
    public let purchases: Purchases
    private let api: API

    /// `baseURL` is the server's address without `/api/v2`.
    public init(
        baseURL: URL, store: any Store, transport: any Transport = URLSessionTransport(), options: Options = Options()
    ) {
        api = API(base: baseURL, store: store, transport: transport, options: options)
        assets = Assets(api)
        jobs = Jobs(api)
        purchases = Purchases(api)
    }

    /// The current session, nil if nobody is signed in.
    public func session() async throws -> Session? { try await api.sessions.get() }

    /// Signs in with the identity token of a provider. Provider b tells the name only at the first sign-in.
    @discardableResult
    public func signIn(_ provider: Provider, idToken: String, fullName: String = "") async throws -> Session {
        try await api.sessions.keep(nil)
        var body = ["idToken": idToken]
        if provider == .b { body["fullName"] = fullName }
        let session: Session = try await call("POST", "/auth/\(provider.rawValue)", body: body)
        try await api.sessions.keep(session)
        return session
    }

    /// Forgets the session on this device.
    public func signOut() async throws { try await api.sessions.keep(nil) }

    /// The user, the credits and the limits.
    public func account() async throws -> Account { try await call("GET", "/auth/account") }

    /// Registers this phone for push messages when a job ends: at each start of the app, and for each new token.
    public func register(_ device: Device) async throws {
        _ = try await api.send(Call("PUT", "/devices", json: encode(device)))
    }

    /// Removes this phone from push messages, before a sign-out.
    public func unregister(_ device: Device) async throws {
        _ = try await api.send(Call("DELETE", "/devices", json: encode(device)))
    }

    /// Deletes the account with its credits, jobs and files, which cannot be undone, and forgets the session.
    public func deleteAccount() async throws {
        try await call("DELETE", "/auth/account")
        try await api.sessions.keep(nil)
    }

    /// Everything else: a path below `/api/v2`, signed, and repeated by the rules of docs/app/errors.md. Throws a
    /// `CutroomError` if the answer is not a success.
    public func call<T: Decodable>(_ method: String, _ path: String, query: [String: String] = [:]) async throws -> T {
        try await api.send(Call(method, path, query: query)).decoded()
    }

    public func call<T: Decodable>(_ method: String, _ path: String, body: some Encodable) async throws -> T {
        try await api.send(Call(method, path, json: encode(body))).decoded()
    }

    /// A call whose answer has no body, such as a deletion.
    public func call(_ method: String, _ path: String) async throws {
        _ = try await api.send(Call(method, path))
    }
}

/// JSON that writes equal values as equal text, because the text of a submit is kept and compared.
func encode(_ value: some Encodable) throws -> Data {
    let encoder = JSONEncoder()
    encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
    return try encoder.encode(value)
}

/// One request of the API.
struct Call: Sendable {
    let method: String
    let path: String
    var query: [String: String] = [:]
    var headers: [String: String] = [:]
    var json: Data?
    /// If a user is named, the request is sent as theirs or not at all.
    var user: String?

    init(
        _ method: String, _ path: String, query: [String: String] = [:], headers: [String: String] = [:], json: Data? = nil,
        user: String? = nil
    ) {
        self.method = method
        self.path = path
        self.query = query
        self.headers = headers
        self.json = json
        self.user = user
    }
}

/// One answer of the API. `body` is a file's address if the call was a download.
struct Answer: Sendable {
    enum Body: Sendable {
        case data(Data)
        case file(URL)
    }

    let status: Int
    let body: Body
    let response: HTTPURLResponse

    var isSuccess: Bool { (200..<300).contains(status) }
    func header(_ name: String) -> String? { response.value(forHTTPHeaderField: name) }

    var data: Data {
        switch body {
        case .data(let data): return data
        case .file(let file): return (try? Data(contentsOf: file)) ?? Data()
        }
    }

    /// The value of the body. Throws a `CutroomError` of status 0 if something in between, such as the sign-in page of a
    /// hotel's network, has answered instead of the service.
    func decoded<T: Decodable>(_ type: T.Type = T.self) throws -> T {
        do {
            return try JSONDecoder().decode(type, from: data)
        } catch {
            throw CutroomError.noAnswer("the answer is not the service's")
        }
    }

    var error: CutroomError {
        CutroomError(
            status: status, body: try? decoded(ErrorBody.self),
            retryAfterSec: header("Retry-After").flatMap { Int($0) }.map { Double(max(0, $0)) }, requestId: header("X-Request-Id"))
    }
}

/// Sends requests, signed, and repeats them.
final class API: Sendable {
    let store: any Store
    let transport: any Transport
    let sessions: Sessions
    private let base: URL
    private let options: Options

    init(base: URL, store: any Store, transport: any Transport, options: Options) {
        self.base = base
        self.store = store
        self.transport = transport
        self.options = options
        sessions = Sessions(store: store, now: options.now)
    }

    /// The successful answer of a call. Throws a `CutroomError` if the answer is not a success.
    func send(_ call: Call, toFile: Bool = false) async throws -> Answer {
        let answer = try await exchange(call, toFile: toFile)
        guard answer.isSuccess else {
            if case .file(let file) = answer.body {
                defer { try? FileManager.default.removeItem(at: file) }
                throw answer.error
            }
            throw answer.error
        }
        return answer
    }

    /// The last answer of a call, whatever it is. Throws a `CutroomError` of status 0 if there is none.
    func exchange(_ call: Call, toFile: Bool = false) async throws -> Answer {
        let signIn = call.path.hasPrefix("/auth/provider_")
        let token = signIn ? nil : try await sessions.token(of: call.user) { try await self.refresh($0) }
        let request = request(call, token: token)
        let safe = call.method != "POST" || call.headers["Idempotency-Key"] != nil || Contract.repeatable.contains(call.path)
        var attempt = 1
        while true {
            let answer = try await once(request, toFile: toFile, mayFail: safe && attempt < Contract.tries)
            let wait = answer.map { waitBefore($0, safe: safe, attempt: attempt) } ?? backoff(attempt)
            if let answer, wait == nil {
                options.onWait(nil)
                if answer.status == 401, let token { try await ended(token, answer) }
                return answer
            }
            if case .file(let file) = answer?.body { try? FileManager.default.removeItem(at: file) }
            options.onWait(wait)
            try await pause(wait ?? 0)
            attempt += 1
        }
    }

    /// Sends a request once. Nil if there is no answer and `mayFail`.
    private func once(_ request: URLRequest, toFile: Bool = false, mayFail: Bool = false) async throws -> Answer? {
        try Task.checkCancellation()
        do {
            let body: Answer.Body
            let response: HTTPURLResponse
            if toFile {
                let (file, head) = try await transport.download(for: request)
                (body, response) = (.file(file), head)
            } else {
                let (data, head) = try await transport.data(for: request, sent: nil)
                (body, response) = (.data(data), head)
            }
            await sessions.heard(response.value(forHTTPHeaderField: "Date"))
            return Answer(status: response.statusCode, body: body, response: response)
        } catch {
            try Task.checkCancellation()
            if mayFail { return nil }
            throw CutroomError.noAnswer()
        }
    }

    private func refresh(_ session: Session) async throws -> Session {
        let request = request(Call("POST", "/auth/refresh"), token: session.accessToken)
        guard let answer = try await once(request), answer.isSuccess else { throw CutroomError.noAnswer() }
        return try answer.decoded()
    }

    private func request(_ call: Call, token: String?) -> URLRequest {
        var address = URLComponents(url: base.appendingPathComponent("api/v2" + call.path), resolvingAgainstBaseURL: false)!
        if !call.query.isEmpty {
            address.queryItems = call.query.sorted { $0.key < $1.key }.map { URLQueryItem(name: $0.key, value: $0.value) }
            // A server reads a bare plus as a space.
            address.percentEncodedQuery = address.percentEncodedQuery?.replacingOccurrences(of: "+", with: "%2B")
        }
        var request = URLRequest(url: address.url!)
        request.httpMethod = call.method
        request.timeoutInterval = options.timeoutSec
        if let wait = call.headers["Prefer"]?.split(separator: "=").last.flatMap({ Double($0) }) {
            request.timeoutInterval = wait + 15
        }
        for (name, value) in call.headers { request.setValue(value, forHTTPHeaderField: name) }
        if let token { request.setValue("Bearer \(token)", forHTTPHeaderField: "Authorization") }
        if call.method == "POST" && options.strict { request.setValue("handling=strict", forHTTPHeaderField: "Prefer") }
        if let json = call.json {
            request.httpBody = json
            request.setValue("application/json", forHTTPHeaderField: "Content-Type")
        }
        return request
    }

    private func ended(_ token: String, _ answer: Answer) async throws {
        // A renewal or another sign-in may have replaced the token while the request was under way.
        guard try await sessions.end(token: token) else { return }
        options.onSignedOut(answer.error.code == "account_deleted" ? .accountDeleted : .signedOut)
    }
}

/// The seconds to wait before the request is repeated, nil if its answer is final.
private func waitBefore(_ answer: Answer, safe: Bool, attempt: Int) -> Double? {
    if attempt == Contract.tries { return nil }
    switch answer.status {
    case 429, 503:
        let error = answer.error
        let after = error.retryAfterSec ?? Double(Contract.missingRetryAfterSec)
        // Refused before anything was done, so a POST may be repeated as well.
        return Contract.lasting.contains(error.code) || after > Double(Contract.longestWaitSec) ? nil : after
    case 500, 502, 504:
        return safe ? backoff(attempt) : nil
    default:
        return nil
    }
}

/// 1, 2, 4, ... seconds and a random part, so that many clients do not come back at the same moment.
private func backoff(_ attempt: Int) -> Double {
    min(Double(Contract.longestWaitSec), Double(1 << (attempt - 1))) * Double.random(in: 0.75...1.25)
}

func pause(_ seconds: Double) async throws {
    try await Task.sleep(nanoseconds: UInt64(max(0, seconds) * 1e9))
}
