// swift-tools-version:5.9
import PackageDescription

let package = Package(
    name: "Cutroom",
    platforms: [.iOS(.v15), .macOS(.v12)],
    products: [.library(name: "Cutroom", targets: ["Cutroom"])],
    targets: [
        .target(name: "Cutroom", swiftSettings: [.enableExperimentalFeature("StrictConcurrency")]),
        // Runs the library against a server that fails: test/clients/phones_test.go starts it.
        .executableTarget(
            name: "Scenarios", dependencies: ["Cutroom"], swiftSettings: [.enableExperimentalFeature("StrictConcurrency")]),
    ]
)
